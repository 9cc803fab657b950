"""The Helm controller of k3s, as far as our code sees it: a HelmChart becomes a Job and a release."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from provision.kube.releases import Release, packed
from provision.lab.kube.kinds import Kind
from provision.lab.kube.store import Object, Store

HELM_CHART_CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "helmcharts.helm.cattle.io"},
    "spec": {
        "group": "helm.cattle.io",
        "names": {"kind": "HelmChart", "plural": "helmcharts"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}
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
        if store.get(store.kind("Namespace"), ("", target)) is None:
            store.seed({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": target}})
        values = json.loads(spec.get("valuesContent") or "{}")
        state = "failed" if failure else "deployed"
        release = Release(name, target, chart, spec["version"], revision, state)
        store.seed(secret_of(release, values))
        if not failure:
            for bring in self.installed:
                bring(store, release, values)

    def _uninstall(self, store: Store, name: str, body: Object) -> None:
        self._seen.pop(name, None)
        target = body["spec"].get("targetNamespace", body["metadata"]["namespace"])
        kind = store.kind("Secret")
        for secret in list(store.listed(kind, target)):
            if secret["metadata"].get("labels", {}).get("name") == name:
                store.delete(kind, (target, secret["metadata"]["name"]))
        for gone in self.removed:
            gone(store, name)


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
