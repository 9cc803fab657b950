"""Pods that a check runs for a time, in a namespace of its own; their logs are the result.

Each group of pods is a Job, bounded in pods and seconds. Should nobody be there to remove it, Kubernetes
itself ends it (`activeDeadlineSeconds`) and removes it (`ttlSecondsAfterFinished`). Nobody is evicted: the
priority of the pods is below all others, and they never preempt.
"""

from __future__ import annotations

import calendar
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

import pytest

from provision.contracts.check import NotRun, Site, Trials
from provision.inventory.placeholders import is_placeholder
from provision.kube.names import API, MANAGED_BY, MANAGER, has_cluster

NAMESPACE = "provision-verify"
"""Begins the names of our namespaces; the id of the run ends them."""
PURPOSE = "provision/purpose"
"""Label by which later runs find what a killed one has left."""
RUN = "provision/run"
TRIAL = "provision/trial"
GROUP = "provision/group"
PROCESS = "provision/process"
"""Annotation of a namespace: machine and process that made it."""
DONE = "provision: done"
"""Line with which the log of a pod ends that holds what it was given until it is removed."""
MOST_PODS = 64
LONGEST = 3600
"""Seconds that a trial may take at most."""
PAUSE = 1.0
PATIENCE = 20.0
"""Seconds that a pod may be without a place: what it asks for may just have become free."""
GOING = 90.0
"""Seconds that pods have to go."""
STALE = 2 * LONGEST
"""Seconds after which a namespace of another machine is a leftover."""
LOG_BYTES = 262_144
OK, CREATED, FORBIDDEN, NOT_FOUND, CONFLICT = 200, 201, 403, 404, 409
IMAGE_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
START_REASONS = frozenset(
    {"CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)
_JOBS = "/apis/batch/v1/namespaces/{}/jobs"
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pods that are alike.

    Args:
        name: of the group within its trial.
        image: with its digest.
        script: text for `/bin/sh -c`.
        node: name of the Node that they run on; empty for any.
        count: how many, all at once.
        resources: what each of them asks for, as `nvidia.com/gpu: "1"`.
        env: variables.
        labels: more labels.
        annotations: of the pods, as the one that names a second network.
        capabilities: of Linux, as `IPC_LOCK`.
        scheduler: another scheduler than the default one.
        runtime_class: RuntimeClass; empty for the default.
        shared_memory: size of /dev/shm (`1Gi`); empty for the default.
        holds: whether each of them keeps what it was given until all have printed their result; the script
            ends with HOLD then.
        user: number of the user that they run as; None for the image's.
        job_annotations: of the Job, as the one that makes its pods a gang.
    """

    name: str
    image: str
    script: str
    node: str = ""
    count: int = 1
    resources: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    scheduler: str = ""
    runtime_class: str = ""
    shared_memory: str = ""
    holds: bool = False
    user: int | None = None
    job_annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodEnd:
    """How a pod ended, or what it had printed while it held what it was given.

    Args:
        group: name of its group.
        name: of the pod.
        node: where it ran.
        code: exit status; None while it holds.
        log: what it has printed.
        body: all of the pod, as the API had it.
    """

    group: str
    name: str
    node: str
    code: int | None
    log: str
    body: Mapping[str, Any] = field(repr=False, compare=False, default_factory=dict)


HOLD = f"echo '{DONE}'; trap 'exit 0' TERM; while :; do sleep 1; done"
"""Ends the script of a pod that holds what it was given."""


def image_of(site: Site, purpose: str) -> str:
    """Return the image for a purpose; without one the check is not run.

    Args:
        site: under verification.
        purpose: key of `verify.images`.
    """
    if not has_cluster(site.inventory):
        raise NotRun("there is no cluster")
    image: str | None = getattr(site.inventory.verify.images, purpose)
    if image is None or is_placeholder(image.rpartition("@sha256:")[2]):
        raise NotRun(f"no image: write verify.images.{purpose}: REPOSITORY@sha256:DIGEST")
    return image


def run_pods(
    site: Site,
    trials: Trials,
    name: str,
    groups: Sequence[PodGroup],
    *,
    seconds: int,
    meanwhile: Callable[[tuple[PodEnd, ...]], None] | None = None,
) -> tuple[PodEnd, ...]:
    """Run pods, return how they ended, and remove them.

    A pod that cannot be placed, or does not start, fails the check with the text that Kubernetes gives; an
    image that cannot be pulled makes it unknown. Pods with another exit status than 0 are returned.

    Args:
        site: under verification.
        trials: of the check.
        name: of the trial: letters, digits and hyphens, at most 30.
        groups: pods that run at the same time.
        seconds: how long all of it may take, with the download of images.
        meanwhile: called while pods hold what they were given, before they are removed.
    """
    number = sum(group.count for group in groups)
    if number > MOST_PODS or not 0 < seconds <= LONGEST:
        raise NotRun(f"{number} pods for {seconds} s are more than {MOST_PODS} pods for {LONGEST} s")
    if site.is_away(API):
        raise NotRun("the API of the cluster cannot be reached")
    space = _Namespace(trials, f"{NAMESPACE}-{trials.run}".lower())
    space.open()
    try:
        for group in groups:
            space.create(_JOBS.format(space.name), _job(space, name, group, seconds))
        ends = _watched(space, name, groups, seconds)
        if meanwhile is not None:
            meanwhile(ends)
        return ends
    finally:
        space.empty(name)


def held_on(trials: Trials, node: str, resource: str) -> dict[str, int]:
    """Return how much of a resource pods hold on a node now, by namespace and name."""
    path = f"/api/v1/pods?{urlencode({'fieldSelector': f'spec.nodeName={node}'})}"
    return uses(_items(trials, path), node, resource)


def uses(pods: Sequence[Mapping[str, Any]], node: str, resource: str) -> dict[str, int]:
    """Return how much of a resource the pods on a node hold, by namespace and name."""
    held: dict[str, int] = {}
    for pod in pods:
        spec, status = pod.get("spec", {}), pod.get("status", {})
        if spec.get("nodeName") != node or status.get("phase") in {"Succeeded", "Failed"}:
            continue
        amount = sum(
            int(container.get("resources", {}).get("limits", {}).get(resource, 0))
            for container in spec.get("containers", [])
        )
        if amount:
            held[f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"] = amount
    return held


def _job(space: _Namespace, trial: str, group: PodGroup, seconds: int) -> dict[str, Any]:
    labels = {**group.labels, **space.labels, TRIAL: trial, GROUP: group.name}
    container: dict[str, Any] = {
        "name": "main",
        "image": group.image,
        "command": ["/bin/sh", "-c", group.script],
        "env": [{"name": key, "value": value} for key, value in group.env.items()],
        "resources": {"limits": dict(group.resources)},
    }
    if group.capabilities:
        container["securityContext"] = {"runAsUser": 0, "capabilities": {"add": list(group.capabilities)}}
    if group.user is not None:
        container["securityContext"] = {"runAsUser": group.user, "runAsNonRoot": group.user > 0}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "priorityClassName": space.name,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        # A check of a node looks at it whatever its taints are, and cordoned or not.
        "tolerations": [
            {"operator": "Exists", "effect": "NoSchedule"},
            {"operator": "Exists", "effect": "NoExecute"},
        ],
        "containers": [container],
    }
    if group.node:
        expression = {"key": "metadata.name", "operator": "In", "values": [group.node]}
        terms = {"nodeSelectorTerms": [{"matchFields": [expression]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    if group.scheduler:
        spec["schedulerName"] = group.scheduler
    if group.runtime_class:
        spec["runtimeClassName"] = group.runtime_class
    if group.shared_memory:
        memory = {"medium": "Memory", "sizeLimit": group.shared_memory}
        spec["volumes"] = [{"name": "shm", "emptyDir": memory}]
        container["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108 - the pod's own
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{trial}-{group.name}",
            "namespace": space.name,
            "labels": labels,
            "annotations": dict(group.job_annotations),
        },
        "spec": {
            "parallelism": group.count,
            "completions": group.count,
            "backoffLimit": 0,
            "activeDeadlineSeconds": seconds,
            "ttlSecondsAfterFinished": 60,
            "template": {
                "metadata": {"labels": labels, "annotations": dict(group.annotations)},
                "spec": spec,
            },
        },
    }


# ------------------------------------------------------------ watching


def _watched(space: _Namespace, trial: str, groups: Sequence[PodGroup], seconds: int) -> tuple[PodEnd, ...]:
    """Look at the pods until all have ended, or hold; their logs are read once each."""
    holding = {group.name for group in groups if group.holds}
    ends: dict[str, PodEnd] = {}
    waited = 0.0
    while True:
        pods = space.pods(trial)
        for pod in pods:
            _fail_early(pod, waited)
            name = pod["metadata"]["name"]
            group = _group(pod)
            phase = pod.get("status", {}).get("phase")
            is_over = phase in {"Succeeded", "Failed"}
            if name in ends or not (is_over or (phase == "Running" and group in holding)):
                continue
            log = space.log(name)
            if is_over or DONE in log.splitlines():
                node = str(pod["spec"].get("nodeName", ""))
                ends[name] = PodEnd(group, name, node, _exit_code(pod) if is_over else None, log, pod)
        if not any(_missing(group, pods, ends) for group in groups):
            return tuple(ends[name] for name in sorted(ends))
        if not pods and not ends and waited >= PATIENCE / 2:
            _fail_without_pods(space, trial, waited)
        if waited >= seconds:
            states = [f"{pod['metadata']['name']} is {pod.get('status', {}).get('phase')}" for pod in pods]
            text = ", ".join(states) or "there are none"
            raise AssertionError(f"the pods did not end within {seconds} s: {text}")
        space.trials.pause(PAUSE)
        waited += PAUSE


def _group(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"].get("labels", {}).get(GROUP, ""))


def _missing(group: PodGroup, pods: Sequence[Mapping[str, Any]], ends: Mapping[str, PodEnd]) -> int:
    """Return how many pods of a group are still to come to an end.

    A Job one of whose pods has failed ends the others: they are not waited for.
    """
    own = [end for end in ends.values() if end.group == group.name]
    if not any(end.code for end in own):
        return group.count - len(own)
    return sum(
        _group(pod) == group.name
        and pod["metadata"]["name"] not in ends
        and "deletionTimestamp" not in pod["metadata"]
        for pod in pods
    )


def _exit_code(pod: Mapping[str, Any]) -> int:
    states = [
        row.get("state", {}).get("terminated", {}) for row in pod["status"].get("containerStatuses", [])
    ]
    return int(states[0].get("exitCode", 1)) if states else 1


def _fail_early(pod: Mapping[str, Any], waited: float) -> None:
    """End the check where waiting is of no use, with the text of Kubernetes."""
    name, status = pod["metadata"]["name"], pod.get("status", {})
    reason = str(status.get("reason", ""))
    if status.get("phase") == "Failed" and reason in {"Preempted", "Preempting", "Evicted", "NodeShutdown"}:
        raise NotRun(f"{name} had to leave its node: {status.get('message') or reason}")
    if status.get("phase") == "Failed" and not status.get("containerStatuses"):
        # The kubelet refuses a pod whose resource it does not have (UnexpectedAdmissionError).
        raise AssertionError(f"{name}: {reason}: {status.get('message', '')}".rstrip(": "))
    for row in status.get("containerStatuses", []):
        waiting = row.get("state", {}).get("waiting") or {}
        text = f"{name}: {waiting.get('reason')}: {waiting.get('message', '')}".rstrip(": ")
        if waiting.get("reason") in IMAGE_REASONS:
            pytest.skip(f"unknown: {text}")
        if waiting.get("reason") in START_REASONS:
            raise AssertionError(text)
    for row in status.get("conditions", []):
        if (row.get("type"), row.get("status")) == ("PodScheduled", "False") and waited >= PATIENCE:
            raise AssertionError(f"{name} stays Pending: {row.get('message') or row.get('reason')}")


def _fail_without_pods(space: _Namespace, trial: str, waited: float) -> None:
    """End the check where the Job's controller says why it cannot make the pods, or does nothing."""
    items = space.items(f"/api/v1/namespaces/{space.name}/events", {})
    for event in items:
        about = event.get("involvedObject", {})
        if str(about.get("name", "")).startswith(trial) and event.get("reason") == "FailedCreate":
            raise AssertionError(str(event.get("message", "")))
    if waited >= PATIENCE:
        raise AssertionError(f"the controller of Jobs has made no pod within {PATIENCE:g} s")


# ------------------------------------------------------------ the namespace


@dataclass(frozen=True, slots=True)
class _Namespace:
    """A namespace of our own."""

    trials: Trials
    name: str

    @property
    def labels(self) -> dict[str, str]:
        return {MANAGED_BY: MANAGER, PURPOSE: "verify", RUN: self.trials.run.lower()}

    def open(self) -> None:
        """Make it and the priority of its pods, unless this run has; remove what killed runs have left."""
        status = self.trials.send(API, "GET", f"/api/v1/namespaces/{self.name}").status
        if status == OK:
            return
        self.sweep()
        self.trials.at_end("Pods of checks are gone", self.close)
        priority = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": self.name, "labels": self.labels},
            "value": -1000,
            "preemptionPolicy": "Never",
            "description": "Pods of provision verify: they never take the place of others.",
        }
        security = {"pod-security.kubernetes.io/enforce": "privileged"}
        space = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": self.name,
                "labels": {**self.labels, **security},
                "annotations": {PROCESS: f"{socket.gethostname()}/{os.getpid()}"},
            },
        }
        self.create(_CLASSES, priority)
        self.create("/api/v1/namespaces", space)

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        reply = self.trials.send(API, "POST", path, body)
        if reply.status == FORBIDDEN:
            raise NotRun(f"not allowed: {reply.text}")
        if reply.status not in {OK, CREATED, CONFLICT}:
            raise AssertionError(f"POST {path}: {reply.status} {reply.text}")

    def pods(self, trial: str) -> list[dict[str, Any]]:
        return self.items(f"/api/v1/namespaces/{self.name}/pods", {"labelSelector": f"{TRIAL}={trial}"})

    def items(self, path: str, query: Mapping[str, str]) -> list[dict[str, Any]]:
        return _items(self.trials, f"{path}?{urlencode(query)}" if query else path)

    def log(self, pod: str) -> str:
        path = f"/api/v1/namespaces/{self.name}/pods/{quote(pod)}/log?limitBytes={LOG_BYTES}"
        reply = self.trials.send(API, "GET", path)
        return reply.text if reply.status == OK else ""

    def empty(self, trial: str) -> None:
        """Remove the pods of a trial, and see that they are gone: what they held is free again."""
        path = _JOBS.format(self.name)
        for job in self.items(path, {"labelSelector": f"{TRIAL}={trial}"}):
            options = "propagationPolicy=Background&gracePeriodSeconds=1"
            self.trials.send(API, "DELETE", f"{path}/{job['metadata']['name']}?{options}")
        self._wait_until(lambda: not self.pods(trial), lambda: f"pods of {self.name}")

    def close(self) -> None:
        """Remove all of it, and see that it is gone."""
        self.trials.send(API, "DELETE", f"{_CLASSES}/{self.name}")
        path = f"/api/v1/namespaces/{self.name}"
        self.trials.send(API, "DELETE", path)
        self._wait_until(lambda: self.trials.send(API, "GET", path).status == NOT_FOUND, self._held)

    def sweep(self) -> None:
        """Remove namespaces and priorities of runs that are no more."""
        selector = {"labelSelector": f"{MANAGED_BY}={MANAGER},{PURPOSE}=verify"}
        spaces = {space["metadata"]["name"]: space for space in self.items("/api/v1/namespaces", selector)}
        left = {name for name, space in spaces.items() if _is_left(space["metadata"])} - {self.name}
        for name in sorted(left):
            self.trials.send(API, "DELETE", f"/api/v1/namespaces/{name}")
        for held in self.items(_CLASSES, selector):
            name = held["metadata"]["name"]
            # A run makes the priority first: a young one without a namespace is that of a run that begins.
            if name in left or (name not in spaces and _age(held["metadata"]) > GOING):
                self.trials.send(API, "DELETE", f"{_CLASSES}/{name}")

    def _held(self) -> str:
        """Return the namespace with what Kubernetes says of why it does not go, as a dead APIService."""
        reply = self.trials.send(API, "GET", f"/api/v1/namespaces/{self.name}")
        texts: list[str] = []
        with suppress(ValueError, AttributeError, TypeError):
            rows = json.loads(reply.text).get("status", {}).get("conditions", [])
            texts = [str(row.get("message", "")) for row in rows if row.get("status") == "True"]
        return f"namespace {self.name}{': ' if texts else ''}{'; '.join(texts)}"

    def _wait_until(self, is_gone: Callable[[], bool], what: Callable[[], str]) -> None:
        waited = 0.0
        while not is_gone():
            if waited >= GOING:
                raise AssertionError(f"{what()}: not gone after {GOING:g} s")
            self.trials.pause(PAUSE, final=True)
            waited += PAUSE


def _items(trials: Trials, path: str) -> list[dict[str, Any]]:
    """Return the objects of a list; the check is unknown without one."""
    reply = trials.send(API, "GET", path)
    if reply.status != OK:
        _unknown(f"GET {path}: {reply.status} {reply.text}")
    try:
        items: list[dict[str, Any]] = json.loads(reply.text)["items"]
    except (ValueError, KeyError, TypeError):
        _unknown(f"GET {path}: the answer is no list")
    return items


def _is_left(metadata: Mapping[str, Any]) -> bool:
    """Whether the run that made a namespace is no more: its process is dead, or it is too old for any run."""
    machine, _, process = str(metadata.get("annotations", {}).get(PROCESS, "")).rpartition("/")
    if machine == socket.gethostname() and re.fullmatch("[1-9][0-9]{0,8}", process):
        try:
            os.kill(int(process), 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False
    return _age(metadata) > STALE


def _age(metadata: Mapping[str, Any]) -> float:
    """Return the seconds since an object was made; 0 where that cannot be read."""
    with suppress(ValueError, OverflowError):
        text = str(metadata.get("creationTimestamp", ""))
        return time.time() - _seconds(text)
    return 0.0


def _seconds(text: str) -> float:
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


def _unknown(reason: str) -> NoReturn:
    pytest.skip(f"unknown: {reason}")


def lines_after(log: str, mark: str) -> Iterator[str]:
    """Yield the lines of a log behind a mark: `uuid GPU-...` gives `GPU-...`."""
    for line in log.splitlines():
        if line.startswith(f"{mark} "):
            yield line.removeprefix(f"{mark} ").strip()
