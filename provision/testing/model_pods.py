"""Pods of Jobs that checks make: a scheduler and kubelets that pretend, and can be given failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from provision.lab.kube.kinds import Kind
from provision.lab.kube.store import Object, Store

TRIAL = "provision/trial"
"""Label of what a check runs."""
Behaviour = Callable[[Object], "Run | None"]
"""From a pod to how it ends; None leaves it to the next one."""


@dataclass(frozen=True, slots=True)
class Run:
    """How a pod ends.

    Args:
        log: what it prints.
        code: its exit status; None while it runs on.
        status: instead of all that: its status as Kubernetes writes it.
    """

    log: str = ""
    code: int | None = 0
    status: Mapping[str, Any] | None = None


@dataclass
class PodRunner:
    """Runs the pods of checks; a controller of ModelCluster.

    Args:
        logs: of the API.
        behaviours: asked in order how a pod ends; without an answer it prints nothing and exits with 0.
        refusal: why no pod of a Job can be made, as its controller says in an event.
    """

    logs: dict[tuple[str, str], str]
    behaviours: list[Behaviour] = field(default_factory=list)
    refusal: str = ""

    def __call__(self, store: Store, event: str, kind: Kind, body: Object) -> None:
        """Make the pods of a new Job; remove those of one that goes."""
        if kind.name != "Job" or TRIAL not in body["metadata"].get("labels", {}):
            return
        namespace, job = body["metadata"]["namespace"], body["metadata"]["name"]
        if event == "DELETED":
            pods = store.kind("Pod")
            for pod in store.listed(pods, namespace):
                if pod["metadata"]["labels"].get("job-name") == job:
                    store.delete(pods, (namespace, pod["metadata"]["name"]))
        elif event == "ADDED" and self.refusal:
            metadata = {"name": f"{job}.1", "namespace": namespace}
            about = {"kind": "Job", "namespace": namespace, "name": job}
            text = {"reason": "FailedCreate", "type": "Warning", "message": self.refusal}
            store.seed(
                {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": about, **text}
            )
        elif event == "ADDED":
            for index in range(body["spec"]["parallelism"]):
                self._run(store, body, f"{job}-{index}")

    def _run(self, store: Store, job: Object, name: str) -> None:
        template = job["spec"]["template"]
        namespace = job["metadata"]["namespace"]
        labels = {**template["metadata"]["labels"], "job-name": job["metadata"]["name"]}
        annotations = template["metadata"].get("annotations", {})
        metadata = {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}
        node = _node_of(template["spec"]) or store.listed(store.kind("Node"))[0]["metadata"]["name"]
        pod: Object = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {**template["spec"], "nodeName": node},
        }
        run = next((run for behaviour in self.behaviours if (run := behaviour(pod)) is not None), Run())
        status = dict(run.status) if run.status is not None else _status(run.code)
        if status.get("phase") == "Pending" and "containerStatuses" not in status:
            del pod["spec"]["nodeName"]
        self.logs[namespace, name] = run.log
        store.seed({**pod, "status": status})


def _node_of(spec: Mapping[str, Any]) -> str:
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    return str(terms[0]["matchFields"][0]["values"][0]) if terms else ""


def _status(code: int | None) -> dict[str, Any]:
    if code is None:
        states: list[dict[str, Any]] = [{"name": "main", "state": {"running": {}}}]
        return {"phase": "Running", "containerStatuses": states}
    ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
    phase = "Failed" if code else "Succeeded"
    return {"phase": phase, "containerStatuses": [{"name": "main", "state": {"terminated": ended}}]}


@dataclass
class PodNetwork:
    """A behaviour of PodRunner: pods that load from each other and ask for a name.

    Args:
        loaded: bytes that a pod gets from one on another node.
        names: whether the cluster answers names.
    """

    loaded: int = 1_048_576
    names: bool = True

    def __call__(self, pod: Object) -> Run | None:
        """Return what a pod of these trials prints."""
        trial = pod["metadata"]["labels"].get(TRIAL, "")
        if trial == "reach-s":
            return Run("address 10.42.0.9\nprovision: done\n", None)
        if trial == "reach-c":
            return Run(f"bytes {self.loaded}\nname {'yes' if self.names else 'no'}\n")
        return None


def unschedulable(message: str) -> Run:
    """Return a pod that the scheduler finds no place for."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return Run(status={"phase": "Pending", "conditions": [condition]})


def waiting(reason: str, message: str = "") -> Run:
    """Return a pod whose container does not start."""
    state = {"waiting": {"reason": reason, "message": message}}
    return Run(status={"phase": "Pending", "containerStatuses": [{"name": "main", "state": state}]})


def ended(reason: str, message: str = "") -> Run:
    """Return a pod that Kubernetes has ended: evicted, preempted, or refused by the kubelet."""
    return Run(status={"phase": "Failed", "reason": reason, "message": message})
