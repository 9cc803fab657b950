"""Nodes of the cluster: there, ready, labelled and tainted as declared."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provision.contracts.check import NotDeclared, Site, Trivial
from provision.kube.names import API, is_member


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


def test_node_labels(site: Site, node: str, kube_node: dict[str, Any]) -> None:
    """The Node has the declared labels and annotations."""
    declared = site.inventory.nodes[node]
    if not declared.labels and not declared.annotations:
        raise Trivial("no labels are declared")
    for section, wanted in (("labels", declared.labels), ("annotations", declared.annotations)):
        held = kube_node["metadata"].get(section, {})
        wrong = [
            f"{key} is {held.get(key)}, not {value}"
            for key, value in wanted.items()
            if held.get(key) != value
        ]
        assert not wrong, f"{section}: {'; '.join(wrong)}"


def test_node_taints(site: Site, node: str, kube_node: dict[str, Any]) -> None:
    """The Node has the declared taints."""
    declared = site.inventory.nodes[node].taints
    if not declared:
        raise Trivial("no taints are declared")
    rows = kube_node["spec"].get("taints", [])
    held = {f"{row['key']}={row.get('value', '')}:{row['effect']}".replace("=:", ":") for row in rows}
    missing = [taint for taint in declared if taint not in held]
    assert not missing, f"missing: {', '.join(missing)}; there are {', '.join(sorted(held)) or 'none'}"
