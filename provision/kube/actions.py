"""Performs the requests of a fix: apply, patch, delete, evict, wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from provision.connections.contracts import KubeConnection, KubeReply
from provision.connections.helm import Helm, HelmTask
from provision.contracts.driver import Emit
from provision.contracts.remedy import Request
from provision.kube import refusals
from provision.kube.comparison import MANAGER
from provision.kube.helm_runs import run_helm
from provision.kube.kinds import API_SERVICE, NAMESPACE, NODE, POD, collection_path, object_path
from provision.kube.readiness import Conditions, Readiness, State, readiness
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Transient

APPLY, FORCE, MERGE, JSON_PATCH, EVICT, WAIT = "APPLY", "FORCE", "MERGE", "JSON-PATCH", "EVICT", "WAIT"
AWAIT_SILENCE = "AWAIT-SILENCE"
"""Methods of requests beyond those of HTTP. FORCE is an APPLY that takes fields from other managers.

AWAIT_SILENCE waits until no machine reports for a Node any more. HELM runs the program helm.
"""
HELM = "HELM"
_TYPES = {
    APPLY: "application/apply-patch+yaml",
    FORCE: "application/apply-patch+yaml",
    MERGE: "application/merge-patch+json",
    JSON_PATCH: "application/json-patch+json",
    "PATCH": "application/merge-patch+json",
}
FIRST_PAUSE, LAST_PAUSE = 0.2, 3.0
TOO_MANY = 429
WORKLOADS = frozenset({"DaemonSet", "Deployment", "StatefulSet"})
MOST_PODS, MOST_LINES = 100, 5


KIND_SECONDS = 120.0
"""How long a kind or a namespace may take to come that an object needs."""


def apply_request(
    api: str, plural: str, manifest: Mapping[str, Any], *, force: bool = False, seconds: float = KIND_SECONDS
) -> Request:
    """Return the request that applies an object; it waits for its kind and its namespace to come."""
    metadata = manifest["metadata"]
    path = object_path(api, plural, metadata.get("namespace", ""), metadata["name"])
    return Request(FORCE if force else APPLY, path, manifest, task=seconds)


def is_write(request: Request) -> bool:
    """Whether a request changes something."""
    return request.method not in {WAIT, AWAIT_SILENCE}


def wait_request(
    api: str, plural: str, namespace: str, name: str, seconds: float, conditions: Conditions | None = None
) -> Request:
    """Return the request that waits until an object is ready."""
    data = {"conditions": conditions} if conditions is not None else {}
    return Request(WAIT, object_path(api, plural, namespace, name), data, task=seconds)


@dataclass(frozen=True, slots=True)
class Actor:
    """Performs requests one by one.

    Args:
        connection: to the API.
        subject: for diagnostics.
        emit: live output.
        cancel: ends waiting.
        clock: seconds that only grow.
        helm: runs helm against this API.
    """

    connection: KubeConnection
    subject: str
    emit: Emit
    cancel: Cancel
    clock: Callable[[], float] = time.monotonic
    helm: Helm | None = None

    def perform(self, request: Request, label: str) -> Diagnostic | None:
        """Perform one request; return what is wrong, or None.

        Raises:
            UnknownOutcome: a write was sent and its answer is missing.
            ProvisionError: the API does not answer.
            Interrupted: the run must leave.
        """
        self.emit(label)
        if request.method == HELM:
            task = request.data.get("task")
            if not isinstance(task, HelmTask):
                raise TypeError(f"{label}: helm needs a task")
            return run_helm(self.helm, self.connection, task, self.emit, self.cancel, self.subject)
        if request.method == WAIT:
            return self._wait(request, label)
        if request.method == AWAIT_SILENCE:
            return self._await_silence(request, label)
        if request.method == EVICT:
            return self._evict(request, label)
        if request.method == "DELETE":
            return self._delete(request, label)
        return self._write(request, label)

    def _write(self, request: Request, label: str) -> Diagnostic | None:
        content_type = _TYPES.get(request.method, "application/json")
        method = "PATCH" if request.method in _TYPES else request.method
        path = request.path
        if request.method in {APPLY, FORCE}:
            force = "true" if request.method == FORCE else "false"
            path = f"{path}?{urlencode({'fieldManager': MANAGER, 'force': force})}"
        elif "?" not in path:
            path = f"{path}?{urlencode({'fieldManager': MANAGER})}"
        operations = request.data.get("operations") if request.method == JSON_PATCH else None
        body = operations if operations is not None else request.data

        def send() -> KubeReply:
            return self.connection.request(method, path, body, content_type=content_type)

        reply = self._until_taken(send, request.task, label)
        if reply.is_success:
            return None
        return refusals.diagnostic_of(refusals.refusal_of(reply), label, self.subject)

    def _until_taken(self, send: Callable[[], KubeReply], seconds: float, label: str) -> KubeReply:
        """Send until the API takes it, or refuses it for good, or the time is over."""
        until = self.clock() + seconds
        pause = FIRST_PAUSE
        while True:
            reply = send()
            if reply.is_success or not refusals.may_heal(reply) or self.clock() + pause > until:
                return reply
            self.emit(f"{label}: waiting: {refusals.message_of(reply)}")
            self.cancel.wait(pause)
            pause = min(pause * 1.5, LAST_PAUSE)

    # ------------------------------------------------------------ waiting

    def _wait(self, request: Request, label: str) -> Diagnostic | None:
        conditions = request.data.get("conditions")
        last = Readiness(State.WAITING, "it is not there")
        body: Mapping[str, Any] = {}
        until = self.clock() + request.task
        pause = FIRST_PAUSE
        shown = ""
        while True:
            reply = self._read(request.path)
            if reply is not None and reply.is_success and isinstance(reply.body, Mapping):
                judge = conditions.of if isinstance(conditions, Conditions) else readiness
                body = reply.body
                last = judge(body)
            if last.state is State.READY:
                return None
            if last.state is State.BROKEN or self.clock() >= until:
                return not_ready(label, last, request.task, self.subject, self._idle_pods(body))
            if last.reason != shown:
                shown = last.reason
                self.emit(f"{label}: {shown}")
            self.cancel.wait(pause)
            pause = min(pause * 1.5, LAST_PAUSE)

    def _idle_pods(self, workload: Mapping[str, Any]) -> tuple[str, ...]:
        """Return why pods of a workload are not ready: its own status only counts them."""
        labels = ((workload.get("spec") or {}).get("selector") or {}).get("matchLabels")
        if workload.get("kind") not in WORKLOADS or not labels:
            return ()
        path = collection_path(POD.api, POD.plural, str(workload["metadata"].get("namespace", "")))
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        reply = self._read(f"{path}?{urlencode({'labelSelector': selector, 'limit': MOST_PODS})}")
        items = reply.body.get("items") if reply is not None and isinstance(reply.body, Mapping) else None
        lines: list[str] = []
        for item in items if isinstance(items, list) else []:
            verdict = readiness({**item, "kind": POD.name})
            if verdict.state is not State.READY:
                lines.append(f"pod {item['metadata']['name']}: {verdict.reason}")
        return tuple(lines[:MOST_LINES])

    def _await_silence(self, request: Request, label: str) -> Diagnostic | None:
        """Wait until a Node is not Ready or not there: a kubelet that runs would register it again."""
        until = self.clock() + request.task
        pause = FIRST_PAUSE
        self.emit(f"{label}: waiting until its machine is silent")
        while True:
            is_last = self.clock() >= until
            reply = self.connection.request("GET", request.path) if is_last else self._read(request.path)
            if reply is not None and reply.status == refusals.NOT_FOUND:
                return None
            body = reply.body if reply is not None and reply.is_success else None
            if isinstance(body, Mapping) and readiness({**body, "kind": NODE.name}).state is not State.READY:
                return None
            if is_last:
                return Diagnostic(
                    "NODE_STILL_RUNS",
                    f"{label}: its machine still reports to the cluster after {request.task:g} s",
                    self.subject,
                    untouched="The Node was left as it is.",
                    remedy="Stop k3s on the machine or switch it off, then run the command again.",
                )
            self.cancel.wait(pause)
            pause = min(pause * 1.5, LAST_PAUSE)

    def _read(self, path: str) -> KubeReply | None:
        """Return what a path answers; None while the API is away for a moment: its only server may reboot."""
        try:
            return self.connection.request("GET", path)
        except Transient:
            return None

    def _delete(self, request: Request, label: str) -> Diagnostic | None:
        reply = self.connection.request("DELETE", request.path, dict(request.data) or None)
        if reply.status == refusals.NOT_FOUND:
            return None
        if not reply.is_success:
            return refusals.diagnostic_of(refusals.refusal_of(reply), label, self.subject)
        return self._until_gone(request, label, _uid(reply)) if request.task else None

    def _until_gone(self, request: Request, label: str, uid: str) -> Diagnostic | None:
        until = self.clock() + request.task
        pause = FIRST_PAUSE
        finalizers: tuple[str, ...] = ()
        while True:
            reply = self._read(request.path.partition("?")[0])
            if reply is not None and reply.status == refusals.NOT_FOUND:
                return None
            if reply is not None and reply.is_success:
                if uid and _uid(reply) not in {"", uid}:
                    return None  # another object of the same name
                if request.method == EVICT and _has_ended(reply):
                    return None  # its containers have; what a finalizer waits for is no work of the node
                finalizers = _held_by(reply)
            if self.clock() >= until:
                return self._still_there(label, request.task, finalizers)
            self.cancel.wait(pause)
            pause = min(pause * 1.5, LAST_PAUSE)

    def _still_there(self, label: str, seconds: float, held_by: tuple[str, ...]) -> Diagnostic:
        """Say what keeps an object: its finalizers, or an APIService or a webhook that does not answer."""
        dead = self._dead_services()
        remedy = "See whether the controller that owns the finalizer runs, then run the command again."
        if dead:
            remedy = "Bring the APIService back or delete it: `kubectl get apiservices`."
        elif any(word in line for line in held_by for word in refusals.WEBHOOK_WORDS):
            remedy = refusals.WEBHOOK_REMEDY
        return Diagnostic(
            "KUBE_NOT_REMOVED",
            f"{label} is still there after {seconds:g} s",
            self.subject,
            evidence=(*held_by, *dead),
            untouched="Its finalizers were not removed: the objects that they protect may still exist.",
            remedy=remedy,
        )

    def _dead_services(self) -> tuple[str, ...]:
        reply = self._read(collection_path(API_SERVICE.api, API_SERVICE.plural))
        items = reply.body.get("items") if reply is not None and isinstance(reply.body, Mapping) else None
        dead: list[str] = []
        for item in items if isinstance(items, list) else []:
            body = {**item, "kind": API_SERVICE.name} if isinstance(item, Mapping) else {}
            verdict = readiness(body)
            has_status = isinstance(body.get("status"), Mapping) and body["status"].get("conditions")
            if has_status and verdict.state is not State.READY:
                service = (body.get("spec") or {}).get("service") or {}
                where = f"{service.get('namespace')}/{service.get('name')}"
                dead.append(f"APIService {body['metadata']['name']} ({where}): {verdict.reason}")
        return tuple(dead)

    def _evict(self, request: Request, label: str) -> Diagnostic | None:
        """Evict a pod and wait until it is gone; a budget may allow it later."""
        namespace, name = str(request.data["namespace"]), str(request.data["name"])
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        before = self._read(request.path)
        uid = _uid(before) if before is not None and before.is_success else ""
        until = self.clock() + request.task
        pause = FIRST_PAUSE
        while True:
            reply = self.connection.request("POST", f"{request.path}/eviction", body)
            if reply.is_success:
                return self._until_gone(request, label, uid)
            if reply.status == refusals.NOT_FOUND:
                return None
            if reply.status != TOO_MANY:
                return refusals.diagnostic_of(refusals.refusal_of(reply), label, self.subject)
            causes = refusals.causes_of(reply)
            text = str(causes[0].get("message")) if causes else refusals.message_of(reply)
            if self.clock() >= until:
                return Diagnostic(
                    "DRAIN_BLOCKED",
                    f"pod {namespace}/{name} cannot be evicted: {text}",
                    self.subject,
                    remedy="Give the budget's workload another ready pod, or change the budget:"
                    f" `kubectl get poddisruptionbudgets -n {namespace}`.",
                )
            self.emit(f"{label}: waiting: {text}")
            self.cancel.wait(pause)
            pause = min(pause * 1.5, LAST_PAUSE)


def not_ready(
    what: str, verdict: Readiness, seconds: float, subject: str, evidence: tuple[str, ...] = ()
) -> Diagnostic:
    """Return the problem of an object that is not ready."""
    if verdict.state is State.BROKEN:
        summary = f"{what} cannot become ready: {verdict.reason}"
    else:
        summary = f"{what} is not ready after {seconds:g} s: {verdict.reason}"
    return Diagnostic(
        "KUBE_NOT_READY",
        summary,
        subject,
        evidence=evidence,
        untouched="What was applied stays as it is.",
        remedy="See its events with `kubectl describe`, correct the cause, and run the command again.",
    )


def _uid(reply: KubeReply) -> str:
    metadata = reply.body.get("metadata") if isinstance(reply.body, Mapping) else None
    return str(metadata.get("uid") or "") if isinstance(metadata, Mapping) else ""


def _has_ended(reply: KubeReply) -> bool:
    """Whether the containers of a pod have ended for good."""
    status = reply.body.get("status") if isinstance(reply.body, Mapping) else None
    return isinstance(status, Mapping) and status.get("phase") in {"Succeeded", "Failed"}


def _held_by(reply: KubeReply) -> tuple[str, ...]:
    """Return what keeps an object from going: finalizers, and the conditions that tell why.

    Only of a namespace do all conditions tell that; those of other kinds are about its life.
    """
    body = reply.body if isinstance(reply.body, Mapping) else {}
    metadata, status = body.get("metadata") or {}, body.get("status") or {}
    is_namespace = body.get("kind") == NAMESPACE.name
    lines = [f"finalizer {name}" for name in metadata.get("finalizers") or ()]
    lines += [
        f"{condition.get('type')}: {condition.get('message')}"
        for condition in status.get("conditions") or ()
        if isinstance(condition, Mapping)
        and (is_namespace or condition.get("type") == "Terminating")
        and condition.get("status") == "True"
        and condition.get("message")
    ]
    return tuple(lines)
