"""Nodes of the cluster: there, ready, labelled and tainted as declared."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provision.contracts.check import NotDeclared, Site, Trivial
from provision.inventory import Inventory
from provision.inventory.models.node import Node
from provision.kube.names import API, OWNER, is_member


@pytest.fixture
def kube_node(site: Site, node: str) -> dict[str, Any]:
    """The Node object of a node: by its name, or by its address where it was adopted."""
    declared = site.inventory.nodes[node]
    if not is_member(site.inventory, declared):
        raise NotDeclared("it is not in the cluster")
    reply = site.get(API, "/api/v1/nodes")
    assert reply.status == 200, f"the API answers {reply.status}: {reply.text}"  # noqa: PLR2004 - means that it is well
    items: list[dict[str, Any]] = json.loads(reply.text)["items"]
    for item in items:
        if item["metadata"]["name"] == declared.kubernetes_name:
            return item
    wanted = {"type": "InternalIP", "address": declared.address}
    matches = [item for item in items if wanted in item["status"].get("addresses", [])]
    names = ", ".join(item["metadata"]["name"] for item in items)
    assert len(matches) == 1, f"the nodes of the cluster are {names or 'none'}"
    return matches[0]


def test_node_is_ready(kube_node: dict[str, Any]) -> None:
    """The node is Ready in the cluster."""
    conditions = {row["type"]: row for row in kube_node["status"].get("conditions", [])}
    ready = conditions.get("Ready", {})
    assert ready.get("status") == "True", ready.get("message") or "it has no condition Ready"


def test_node_is_schedulable(kube_node: dict[str, Any]) -> None:
    """The node takes new pods."""
    assert not kube_node["spec"].get("unschedulable"), "it is cordoned"


def _left_resources(inventory: Inventory, node: Node, status: dict[str, Any]) -> list[str]:
    """Return the keys of plugins that are gone: zero, and offered by nothing that is declared."""
    declared = {"nvidia.com/gpu"} if node.wants_gpu else set()
    declared |= {f"rdma/{name}" for name in (inventory.rdma.resources if inventory.rdma is not None else ())}
    amounts = {**status.get("allocatable", {}), **status.get("capacity", {})}
    zero = (key for key, amount in amounts.items() if "/" in key and str(amount) == "0")
    return sorted(set(zero) - declared)


def test_node_has_no_left_resources(site: Site, node: str, kube_node: dict[str, Any]) -> None:
    """The Node offers nothing of a plugin that is gone: pods that ask for it would wait for ever."""
    left = _left_resources(site.inventory, site.inventory.nodes[node], kube_node["status"])
    operations = [
        {"op": "remove", "path": f"/status/{part}/{key.replace('~', '~0').replace('/', '~1')}"}
        for key in left
        for part in ("capacity", "allocatable")
        if key in kube_node["status"].get(part, {})
    ]
    name = kube_node["metadata"]["name"]
    assert not left, (
        f"its status has {', '.join(left)}: 0 of a plugin that is gone. Once it is, run:"
        f" kubectl patch node {name} --subresource=status --type=json -p '{json.dumps(operations)}'"
    )


def test_node_labels(site: Site, node: str, kube_node: dict[str, Any]) -> None:
    """The Node has the declared labels and annotations, and the mark of this inventory."""
    declared = site.inventory.nodes[node]
    own = {OWNER: site.inventory.name} if site.inventory.cluster.kubeconfig is None else {}
    annotations = {**declared.annotations, **own}
    if not declared.labels and not annotations:
        raise Trivial("no labels are declared")
    wrong = []
    for section, wanted in (("labels", declared.labels), ("annotations", annotations)):
        held = kube_node["metadata"].get(section, {})
        differs = [
            f"{key} is {held.get(key)}, not {value}"
            for key, value in wanted.items()
            if held.get(key) != value
        ]
        wrong += [f"{section}: {'; '.join(differs)}"] if differs else []
    assert not wrong, "; ".join(wrong)


def test_node_taints(site: Site, node: str, kube_node: dict[str, Any]) -> None:
    """The Node has the declared taints."""
    declared = site.inventory.nodes[node].taints
    if not declared:
        raise Trivial("no taints are declared")
    rows = kube_node["spec"].get("taints", [])
    held = {f"{row['key']}={row.get('value', '')}:{row['effect']}".replace("=:", ":") for row in rows}
    missing = [taint for taint in declared if taint not in held]
    assert not missing, f"missing: {', '.join(missing)}; there are {', '.join(sorted(held)) or 'none'}"
