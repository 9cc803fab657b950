"""CustomResourceDefinitions, as charts bring them, without the schema of their fields."""

from __future__ import annotations

from typing import Any

_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


OWNED = {
    "ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "operator", "uid": "of-the-operator"}
    ]
}
"""Metadata of what an operator makes."""


def of_release(name: str, namespace: str) -> dict[str, Any]:
    """Return the metadata by which Helm marks what a chart brings."""
    return {"annotations": {"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": namespace}}


def definition(group: str, version: str, kind: str, plural: str, scope: str = "Cluster") -> dict[str, Any]:
    """Return a CustomResourceDefinition with one version, which has a status."""
    schema = {"type": "object", "properties": {"spec": _OPEN, "status": _OPEN}}
    served = {
        "name": version,
        "served": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural},
            "scope": scope,
            "versions": [served],
        },
    }
