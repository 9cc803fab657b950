"""Whether an object is ready, waits for something, or cannot become ready by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from provision.kube.queries import JsonObject


class State(StrEnum):
    """How far an object is."""

    READY = "ready"
    WAITING = "waiting"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Readiness:
    """How far an object is, and why."""

    state: State
    reason: str = ""


READY = Readiness(State.READY)

_HOPELESS = frozenset({"InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "StartError"})
"""Reasons for which a container waits that no waiting cures."""
RESTARTS = 5
"""Restarts after which a container in a crash loop counts as broken."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What must be so in the status of a custom resource.

    Args:
        ready: paths and values that all must hold, as in `("state", "ready")` or
            `("conditions[Ready].reason", "Reconciled")`.
        broken: paths and values of which one means that waiting does not help.
    """

    ready: tuple[tuple[str, str], ...]
    broken: tuple[tuple[str, str], ...] = ()

    def of(self, body: JsonObject) -> Readiness:
        """Judge an object."""
        for path, value in self.broken:
            if str(value_at(body, path)) == value:
                return Readiness(State.BROKEN, f"{path} is {value}{_message(body)}")
        for path, value in self.ready:
            actual = value_at(body, path)
            if str(actual) != value:
                return Readiness(State.WAITING, f"{path} is {actual or 'not set'}{_message(body)}")
        return READY


def value_at(body: JsonObject, path: str) -> Any:
    """Return the value at a path of an object's status; `conditions[Ready].reason` picks one by its type."""
    value: Any = body.get("status")
    for part in path.split("."):
        match = re.fullmatch(r"(\w+)\[(\w+)\]", part)
        if match is None:
            value = value.get(part) if isinstance(value, Mapping) else None
            continue
        items = value.get(match[1]) if isinstance(value, Mapping) else None
        value = next(
            (item for item in _items(items) if isinstance(item, Mapping) and item.get("type") == match[2]),
            None,
        )
    return value


def readiness(body: JsonObject) -> Readiness:
    """Judge an object by its kind; kinds without a rule are ready once they are there."""
    if "deletionTimestamp" in _mapping(body.get("metadata")):
        return Readiness(State.WAITING, "it is being deleted")
    judge = _RULES.get(str(body.get("kind", "")))
    return READY if judge is None else judge(body)


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _message(body: JsonObject) -> str:
    """Return the message of a condition that is not as it should be, for people."""
    for row in _items(_mapping(body.get("status")).get("conditions")):
        condition = _mapping(row)
        text = str(condition.get("message") or "")
        is_bad = (condition.get("type"), condition.get("status")) in {("Ready", "False"), ("Error", "True")}
        if text and is_bad:
            return f": {text}"
    return ""


def _is_current(body: JsonObject) -> bool:
    """Whether its controller has seen the present desired state."""
    generation = _number(_mapping(body.get("metadata")).get("generation"))
    return _number(_mapping(body.get("status")).get("observedGeneration")) >= generation


def _daemon_set(body: JsonObject) -> Readiness:
    status = _mapping(body.get("status"))
    if not _is_current(body):
        return Readiness(State.WAITING, "its controller has not processed the change yet")
    desired = _number(status.get("desiredNumberScheduled"))
    if _number(status.get("updatedNumberScheduled")) < desired:
        return Readiness(
            State.WAITING, f"{_number(status.get('updatedNumberScheduled'))} of {desired} pods are updated"
        )
    ready = _number(status.get("numberReady"))
    return READY if ready >= desired else Readiness(State.WAITING, f"{ready} of {desired} pods are ready")


def _deployment(body: JsonObject) -> Readiness:
    status = _mapping(body.get("status"))
    progress = value_at(body, "conditions[Progressing]")
    if _mapping(progress).get("reason") == "ProgressDeadlineExceeded":
        return Readiness(State.BROKEN, str(_mapping(progress).get("message") or "its deadline has passed"))
    if not _is_current(body):
        return Readiness(State.WAITING, "its controller has not processed the change yet")
    desired = _number(_mapping(body.get("spec")).get("replicas", 1))
    ready = min(_number(status.get("updatedReplicas")), _number(status.get("readyReplicas")))
    failure = _mapping(value_at(body, "conditions[ReplicaFailure]"))  # a quota, or Pod Security
    why = f": {failure.get('message')}" if failure.get("status") == "True" else ""
    return (
        READY if ready >= desired else Readiness(State.WAITING, f"{ready} of {desired} pods are ready{why}")
    )


def _job(body: JsonObject) -> Readiness:
    if _mapping(value_at(body, "conditions[Complete]")).get("status") == "True":
        return READY
    failure = _mapping(value_at(body, "conditions[Failed]"))
    if failure.get("status") == "True":
        return Readiness(
            State.BROKEN, str(failure.get("message") or failure.get("reason") or "it has failed")
        )
    return Readiness(State.WAITING, "it has not ended yet")


def _pod(body: JsonObject) -> Readiness:
    status = _mapping(body.get("status"))
    phase = status.get("phase")
    if phase == "Failed":
        return Readiness(State.BROKEN, str(status.get("message") or status.get("reason") or "it has failed"))
    is_ready = _mapping(value_at(body, "conditions[Ready]")).get("status") == "True"
    if phase == "Succeeded" or is_ready:
        return READY
    scheduled = _mapping(value_at(body, "conditions[PodScheduled]"))
    if scheduled.get("status") == "False":
        return Readiness(State.WAITING, str(scheduled.get("message") or "no node takes it"))
    return _containers(status) or Readiness(State.WAITING, f"it is {phase or 'not seen by a node yet'}")


def _containers(status: Mapping[str, Any]) -> Readiness | None:
    """Return why a container of a pod waits; None where none says so."""
    for row in (*_items(status.get("initContainerStatuses")), *_items(status.get("containerStatuses"))):
        container = _mapping(row)
        waiting = _mapping(_mapping(container.get("state")).get("waiting"))
        reason = str(waiting.get("reason") or "")
        text = f"container {container.get('name')}: {reason} {waiting.get('message') or ''}".strip()
        is_loop = reason == "CrashLoopBackOff" and _number(container.get("restartCount")) >= RESTARTS
        if reason in _HOPELESS or is_loop:
            return Readiness(State.BROKEN, text)
        if reason not in {"", "ContainerCreating", "PodInitializing"}:
            return Readiness(State.WAITING, text)
    return None


def _condition(name: str) -> Callable[[JsonObject], Readiness]:
    def judge(body: JsonObject) -> Readiness:
        condition = _mapping(value_at(body, f"conditions[{name}]"))
        if condition.get("status") == "True":
            return READY
        text = str(condition.get("message") or condition.get("reason") or f"it is not {name} yet")
        return Readiness(State.WAITING, text)

    return judge


def _namespace(body: JsonObject) -> Readiness:
    phase = _mapping(body.get("status")).get("phase")
    return READY if phase is None or phase == "Active" else Readiness(State.WAITING, f"it is {phase}")


def _helm_chart(body: JsonObject) -> Readiness:
    failure = _mapping(value_at(body, "conditions[Failed]"))
    if failure.get("status") == "True":
        return Readiness(
            State.BROKEN, str(failure.get("message") or failure.get("reason") or "its Job failed")
        )
    return (
        READY if value_at(body, "jobName") else Readiness(State.WAITING, "no controller has processed it yet")
    )


_RULES: Mapping[str, Callable[[JsonObject], Readiness]] = {
    "Namespace": _namespace,
    "DaemonSet": _daemon_set,
    "Deployment": _deployment,
    "StatefulSet": _deployment,
    "Job": _job,
    "Pod": _pod,
    "Node": _condition("Ready"),
    "CustomResourceDefinition": _condition("Established"),
    "APIService": _condition("Available"),
    "HelmChart": _helm_chart,
}
