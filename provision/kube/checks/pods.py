"""Pods that a check runs for a time, in a namespace of its own; their logs are the result.

Each group of pods is a Job, bounded in pods and seconds. Should nobody be there to remove it, Kubernetes
itself ends it (`activeDeadlineSeconds`) and removes it (`ttlSecondsAfterFinished`). Nobody is evicted: the
priority of the pods is below all others, and they never preempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import pytest

from provision.contracts.check import NotRun, Site, Trials
from provision.inventory.check_images import check_image
from provision.kube.checks.trial_space import LONGEST, PAUSE, TRIAL, TrialSpace, items_of
from provision.kube.names import API, has_cluster

GROUP = "provision/group"
DONE = "provision: done"
"""Line with which the log of a pod ends that holds what it was given until it is removed."""
MOST_PODS = 64
PATIENCE = 20.0
"""Seconds that a pod may be without a place: what it asks for may just have become free."""
IMAGE_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
START_REASONS = frozenset(
    {"CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)
END_REASONS = frozenset({"StartError", "ContainerCannotRun", "OOMKilled"})


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
        is_urgent: whether schedulers put it before other pods of checks, though never before those of others.
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
    is_urgent: bool = False


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
    image = check_image(site.inventory, purpose)
    if image is None and getattr(site.inventory.verify.images, purpose) is not None:
        file = site.inventory.file or "INVENTORY"
        raise NotRun(f"the digest of verify.images.{purpose} is not known: `provision pin {file}` writes it")
    if image is None:
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
    patience: float = PATIENCE,
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
        patience: seconds that a pod may be without a place.
    """
    number = sum(group.count for group in groups)
    if number > MOST_PODS or not 0 < seconds <= LONGEST:
        raise NotRun(f"{number} pods for {seconds} s are more than {MOST_PODS} pods for {LONGEST} s")
    if site.is_away(API):
        raise NotRun("the API of the cluster cannot be reached")
    space = TrialSpace.of(trials)
    space.open()
    try:
        for group in groups:
            space.create(space.jobs, _job(space, name, group, seconds))
        ends = _watched(space, name, groups, seconds, patience)
        if meanwhile is not None:
            meanwhile(ends)
        return ends
    finally:
        space.empty(name)


def held_on(trials: Trials, node: str, resource: str) -> dict[str, int]:
    """Return how much of a resource pods hold on a node now, by namespace and name."""
    path = f"/api/v1/pods?{urlencode({'fieldSelector': f'spec.nodeName={node}'})}"
    return uses(items_of(trials, path), node, resource)


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


def _job(space: TrialSpace, trial: str, group: PodGroup, seconds: int) -> dict[str, Any]:
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
        "priorityClassName": space.urgent_priority() if group.is_urgent else space.name,
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


def _watched(
    space: TrialSpace, trial: str, groups: Sequence[PodGroup], seconds: int, patience: float
) -> tuple[PodEnd, ...]:
    """Look at the pods until all have ended, or hold; their logs are read once each."""
    holding = {group.name for group in groups if group.holds}
    ends: dict[str, PodEnd] = {}
    seen: dict[str, str] = {}
    waited = 0.0
    while True:
        pods = space.pods(trial)
        seen |= {pod["metadata"]["name"]: _group(pod) for pod in pods}
        for pod in pods:
            _fail_early(pod, waited, patience)
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
        _fail_of_gone(space, trial, seen, pods, ends)
        if not seen and waited >= PATIENCE / 2:
            _fail_without_pods(space, trial, waited)
        if waited >= seconds:
            states = [f"{pod['metadata']['name']} is {pod.get('status', {}).get('phase')}" for pod in pods]
            text = ", ".join(states) or "there are none"
            why = _warnings(space, trial)
            text += f": {why[-1]}" if why else ""
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


def _fail_early(pod: Mapping[str, Any], waited: float, patience: float) -> None:
    """End the check where waiting is of no use, with the text of Kubernetes."""
    name, status = pod["metadata"]["name"], pod.get("status", {})
    reason = str(status.get("reason", ""))
    if status.get("phase") == "Failed" and reason in {"Preempted", "Preempting", "Evicted", "NodeShutdown"}:
        raise NotRun(f"{name} had to leave its node: {status.get('message') or reason}")
    if status.get("phase") == "Failed" and not status.get("containerStatuses"):
        # The kubelet refuses a pod whose resource it does not have (UnexpectedAdmissionError).
        raise AssertionError(f"{name}: {reason}: {status.get('message', '')}".rstrip(": "))
    for row in status.get("containerStatuses", []):
        _fail_of_end(name, row.get("state", {}).get("terminated") or {})
        waiting = row.get("state", {}).get("waiting") or {}
        text = f"{name}: {waiting.get('reason')}: {waiting.get('message', '')}".rstrip(": ")
        if waiting.get("reason") in IMAGE_REASONS:
            pytest.skip(f"unknown: {text}")
        if waiting.get("reason") in START_REASONS:
            raise AssertionError(text)
    for row in status.get("conditions", []):
        if (row.get("type"), row.get("status")) == ("PodScheduled", "False") and waited >= patience:
            raise AssertionError(f"{name} stays Pending: {row.get('message') or row.get('reason')}")
    if not status.get("conditions") and not pod["spec"].get("nodeName") and waited >= patience:
        raise AssertionError(
            f"{name} stays Pending: no scheduler {pod['spec'].get('schedulerName')} takes it"
        )


def _fail_of_end(name: str, terminated: Mapping[str, Any]) -> None:
    """End the check where a container did not end by itself: its exit status says nothing of the script."""
    reason = str(terminated.get("reason", ""))
    if terminated.get("exitCode") and reason in END_REASONS:
        raise AssertionError(f"{name}: {reason}: {terminated.get('message', '')}".rstrip(": "))


def _warnings(space: TrialSpace, trial: str) -> list[str]:
    """Return what the kubelets say of pods that do not start: a network that fails leaves no other sign."""
    events = space.items(f"/api/v1/namespaces/{space.name}/events", {})
    return [
        f"{event.get('reason')}: {str(event.get('message', ''))[:300]}"
        for event in events
        if event.get("type") == "Warning"
        and str(event.get("involvedObject", {}).get("name", "")).startswith(trial)
    ]


def _fail_of_gone(
    space: TrialSpace,
    trial: str,
    seen: Mapping[str, str],
    pods: Sequence[Mapping[str, Any]],
    ends: Mapping[str, PodEnd],
) -> None:
    """End the check where pods went before their end: their Job's time was over, or somebody removed them."""
    here = {pod["metadata"]["name"] for pod in pods}
    failed = {end.group for end in ends.values() if end.code}
    gone = [
        name for name, group in sorted(seen.items()) if name not in {*here, *ends} and group not in failed
    ]
    if not gone:
        return
    jobs = space.items(space.jobs, {"labelSelector": f"{TRIAL}={trial}"})
    rows = [row for job in jobs for row in job.get("status", {}).get("conditions", [])]
    late = [row for row in rows if row.get("reason") == "DeadlineExceeded"]
    if late:
        raise AssertionError(f"{', '.join(gone)} did not end in time: {late[0].get('message')}")
    raise NotRun(f"{', '.join(gone)} went before the end: somebody has removed or evicted what is missing")


def _fail_without_pods(space: TrialSpace, trial: str, waited: float) -> None:
    """End the check where the Job's controller says why it cannot make the pods, or does nothing."""
    items = space.items(f"/api/v1/namespaces/{space.name}/events", {})
    for event in items:
        about = event.get("involvedObject", {})
        if str(about.get("name", "")).startswith(trial) and event.get("reason") == "FailedCreate":
            raise AssertionError(str(event.get("message", "")))
    if waited >= PATIENCE:
        raise AssertionError(f"the controller of Jobs has made no pod within {PATIENCE:g} s")


def lines_after(log: str, mark: str) -> Iterator[str]:
    """Yield the lines of a log behind a mark: `uuid GPU-...` gives `GPU-...`."""
    for line in log.splitlines():
        if line.startswith(f"{mark} "):
            yield line.removeprefix(f"{mark} ").strip()
