"""What checks of several domains read of the cluster: paths, Nodes, DaemonSets."""

from __future__ import annotations

import json
from typing import Any

from provision.contracts.check import Site
from provision.kube.names import API

OK = 200


def get(site: Site, path: str) -> dict[str, Any]:
    """Return the JSON of a path that must be there."""
    reply = site.get(API, path)
    assert reply.status == OK, f"{path}: {reply.status} {reply.text}"
    body: dict[str, Any] = json.loads(reply.text)
    return body


def is_ready(item: dict[str, Any]) -> bool:
    """Whether a Node is ready."""
    rows = item["status"].get("conditions", [])
    return any((row["type"], row["status"]) == ("Ready", "True") for row in rows)


def prove_daemon_sets(site: Site, namespace: str) -> None:
    """Prove that the DaemonSets of a namespace have a pod of the present state on each node that is up."""
    away = sum(not is_ready(item) for item in get(site, "/api/v1/nodes")["items"])
    items = get(site, f"/apis/apps/v1/namespaces/{namespace}/daemonsets")["items"]
    assert items, "there is no DaemonSet"
    for item in items:
        name, status = item["metadata"]["name"], item.get("status", {})
        observed = status.get("observedGeneration", 0)
        assert observed >= item["metadata"].get("generation", 0), (
            f"{name}: its controller has not seen the change"
        )
        declared, running = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
        assert running + away >= declared, f"{name}: {running} of {declared} pods are ready"
