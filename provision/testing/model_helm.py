"""The Helm controller of k3s, as far as our code sees it: a HelmChart becomes a Job and a release."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from provision.connections.helm import HelmTask
from provision.kube.chart_archive import described
from provision.kube.releases import Release, packed
from provision.lab.kube.kinds import Kind
from provision.lab.kube.store import Object, Store
from provision.testing.model_definitions import definition
from provision.values.cancel import Cancel

HELM_CHART_CRD = definition("helm.cattle.io", "v1", "HelmChart", "helmcharts", "Namespaced")
"""As k3s brings it, without the schema of its fields."""
Installed = Callable[[Store, Release, Mapping[str, Any]], None]


@dataclass
class HelmController:
    """A controller of ModelCluster.

    Args:
        failing: log of the Job of each chart that fails, by name.
        installed: called with each release and its values: what the chart brings.
        removed: called with the name of each chart that is uninstalled.
    """

    failing: dict[str, str] = field(default_factory=dict)
    installed: list[Installed] = field(default_factory=list)
    removed: list[Callable[[Store, str], None]] = field(default_factory=list)
    logs: dict[tuple[str, str], str] = field(default_factory=dict)
    _seen: dict[str, Any] = field(default_factory=dict)

    def __call__(self, store: Store, event: str, kind: Kind, body: Object) -> None:
        """React to a HelmChart."""
        if kind.name != "HelmChart":
            return
        name = body["metadata"]["name"]
        if event == "DELETED":
            self._uninstall(store, name, body)
        elif self._seen.get(name) != body["spec"]:
            self._seen[name] = json.loads(json.dumps(body["spec"]))
            self._install(store, name, body)

    def _install(self, store: Store, name: str, body: Object) -> None:
        namespace, job = body["metadata"]["namespace"], f"helm-install-{name}"
        spec = body["spec"]
        chart = spec["chart"].rpartition("/")[2] if "chart" in spec else name
        target = spec.get("targetNamespace", namespace)
        revision = 1 + sum(
            secret["metadata"]["labels"].get("name") == name
            for secret in store.listed(store.kind("Secret"), target)
            if "owner" in secret["metadata"].get("labels", {})
        )
        failure = self.failing.get(chart)
        condition = {"type": "Failed", "status": "True", "message": "Job has reached the backoff limit"}
        status = {"conditions": [condition if failure else {"type": "Complete", "status": "True"}]}
        metadata = {"name": job, "namespace": namespace}
        store.seed(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {}, "status": status}
        )
        pod = {"name": f"{job}-x", "namespace": namespace, "labels": {"job-name": job}}
        store.seed(
            {"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": {}, "status": {"phase": "Failed"}}
        )
        self.logs[namespace, f"{job}-x"] = failure or ""
        values = json.loads(spec.get("valuesContent") or "{}")
        release = Release(name, target, chart, spec["version"], revision, "failed" if failure else "deployed")
        self.bring(store, release, values)

    def bring(self, store: Store, release: Release, values: Mapping[str, Any]) -> None:
        """Write a release, and make what its chart brings unless it has failed."""
        if store.get(store.kind("Namespace"), ("", release.namespace)) is None:
            store.seed({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": release.namespace}})
        store.seed(secret_of(release, values))
        if release.status == "deployed":
            for bring in self.installed:
                bring(store, release, values)

    def _uninstall(self, store: Store, name: str, body: Object) -> None:
        self._seen.pop(name, None)
        self.take_away(store, name, body["spec"].get("targetNamespace", body["metadata"]["namespace"]))

    def take_away(self, store: Store, name: str, target: str) -> None:
        """Remove a release, and what its chart has brought."""
        kind = store.kind("Secret")
        for secret in list(store.listed(kind, target)):
            if secret["metadata"].get("labels", {}).get("name") == name:
                store.delete(kind, (target, secret["metadata"]["name"]))
        for gone in self.removed:
            gone(store, name)


@dataclass
class ModelHelm:
    """The program helm, as far as our code sees it; a Helm.

    Args:
        store: of the cluster.
        controller: knows what charts bring, and which of them fail.
        tasks: all that was run.
    """

    store: Store
    controller: HelmController
    tasks: list[HelmTask] = field(default_factory=list)

    def run(self, task: HelmTask, emit: Callable[[str], None], cancel: Cancel) -> tuple[int, tuple[str, ...]]:
        """Do a task at once; see Helm."""
        del cancel
        self.tasks.append(task)
        emit(f"helm {task.verb} {task.name}")
        if task.verb == "uninstall":
            self.controller.take_away(self.store, task.name, task.namespace)
            return 0, ()
        description = described(task.chart() if task.chart is not None else b"")
        if description is None:
            return 1, ("Error: Chart.yaml file is missing",)
        chart, version = description
        former = [
            secret
            for secret in self.store.listed(self.store.kind("Secret"), task.namespace)
            if secret["metadata"].get("labels", {}).get("name") == task.name
        ]
        failure = self.controller.failing.get(chart)
        status = "failed" if failure else "deployed"
        release = Release(task.name, task.namespace, chart, version, len(former) + 1, status)
        self.controller.bring(self.store, release, task.values)
        return (1, (f"Error: INSTALLATION FAILED: {failure}",)) if failure else (0, ())


def secret_of(release: Release, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Secret in which Helm keeps a release."""
    labels = {
        "name": release.name,
        "owner": "helm",
        "status": release.status,
        "version": str(release.revision),
    }
    name = f"sh.helm.release.v1.{release.name}.v{release.revision}"
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "helm.sh/release.v1",
        "metadata": {"name": name, "namespace": release.namespace, "labels": labels},
        "data": {"release": packed(release, values)},
    }
