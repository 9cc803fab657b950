"""CustomResourceDefinitions, as charts bring them, without the schema of their fields."""

from __future__ import annotations

from typing import Any

_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


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
