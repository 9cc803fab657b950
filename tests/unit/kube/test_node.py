"""Labels, annotations and taints of nodes; and which Node object is which machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.api.domains import load_inventory
from provision.contracts.driver import Verdict
from provision.inventory import Inventory
from provision.kube.facts import NodeFact, Taint, find_node
from provision.kube.names import API
from provision.kube.resources.node import NodeSettings, parse_taint
from provision.lab.kube.store import Write
from provision.testing.model_cluster import ModelCluster
from tests.unit.kube.site import bring, changes, paths

NOT_READY = {
    "key": "node.kubernetes.io/not-ready",
    "effect": "NoExecute",
    "timeAdded": "2026-01-01T00:00:00Z",
}
GPU = parse_taint("nvidia.com/gpu=present:NoSchedule")


@pytest.fixture
def cluster() -> ModelCluster:
    cluster = ModelCluster()
    cluster.add_node("n", "10.0.0.1", labels={"theirs": "1"}, taints=[NOT_READY])
    return cluster


def node(**more: Any) -> NodeSettings:
    labels, annotations = (tuple(more.get(key, {}).items()) for key in ("labels", "annotations"))
    return NodeSettings(API, "n", labels, annotations, more.get("taints", ()))


def live(cluster: ModelCluster) -> Any:
    return cluster.get("Node", "n")


def test_settings_are_brought_about_beside_those_of_others(cluster: ModelCluster) -> None:
    wanted = node(labels={"rack": "r1"}, annotations={"note": "x"}, taints=(GPU,))
    assert paths(changes(cluster, wanted)) == [
        "+ labels[rack]",
        "+ annotations[note]",
        "+ annotations[provision/taints]",
        "+ taints",
    ]
    assert bring(cluster, wanted)[0].verdict is Verdict.DONE
    assert changes(cluster, wanted) == ()
    assert live(cluster)["metadata"]["labels"]["theirs"] == "1"
    assert live(cluster)["spec"]["taints"][0] == NOT_READY


def test_what_is_declared_no_more_is_removed(cluster: ModelCluster) -> None:
    bring(cluster, node(labels={"rack": "r1", "row": "2"}, taints=(GPU,)))
    wanted = node(labels={"row": "2"})
    assert paths(changes(cluster, wanted)) == [
        "- labels[rack]",
        "- annotations[provision/taints]",
        "- taints",
    ]
    bring(cluster, wanted)
    assert changes(cluster, wanted) == ()
    assert "rack" not in live(cluster)["metadata"]["labels"]
    assert live(cluster)["spec"]["taints"] == [NOT_READY]


def test_a_label_that_somebody_changed_is_set_again(cluster: ModelCluster) -> None:
    bring(cluster, node(labels={"rack": "r1"}))
    kind, place = cluster.store.kind("Node"), ("", "n")
    held = live(cluster)
    labels = {**held["metadata"]["labels"], "rack": "other"}
    cluster.store.update(
        kind, place, {**held, "metadata": {**held["metadata"], "labels": labels}}, Write("k")
    )
    assert [change.old for change in changes(cluster, node(labels={"rack": "r1"}))] == ["other"]
    bring(cluster, node(labels={"rack": "r1"}))
    assert changes(cluster, node(labels={"rack": "r1"})) == ()


def test_a_node_that_is_not_there_is_never_made(cluster: ModelCluster) -> None:
    missing = NodeSettings(API, "other", (("a", "b"),))
    assert paths(changes(cluster, missing)) == ["! node"]
    assert cluster.writes() == []


@pytest.mark.hypothesis
@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from("ab"), st.sampled_from("12")), min_size=1, max_size=4),
    st.lists(st.sampled_from(["k=v:NoSchedule", "k=w:NoSchedule", "l:NoExecute"]), max_size=2, unique=True),
)
def test_after_a_fix_nothing_differs(labels: list[dict[str, str]], taints: list[str]) -> None:
    cluster = ModelCluster()
    cluster.add_node("n", "10.0.0.1", taints=[NOT_READY])
    distinct = {parse_taint(text).key: parse_taint(text) for text in taints}
    for index, step in enumerate(labels):
        wanted = node(labels=step, taints=tuple(distinct.values()) if index % 2 else ())
        bring(cluster, wanted)
        assert changes(cluster, wanted) == ()


def test_taints_are_spelled_as_kubectl_does() -> None:
    assert str(parse_taint("a=b:NoSchedule")) == "a=b:NoSchedule"
    assert parse_taint("a:NoExecute") == Taint("a", "", "NoExecute")


SITE = """
version: 1
name: site
cluster: { kubeconfig: /nowhere }
nodes:
  n1: { address: 10.0.0.1, labels: { a: b } }
  n2: { address: 10.0.0.2, kube_name: host-2 }
"""


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    path = tmp_path / "site.yaml"
    path.write_text(SITE)
    return load_inventory(path, environ={})


@pytest.mark.parametrize(
    ("fact", "machine", "found"),
    [
        (NodeFact("n1"), {}, True),
        (NodeFact("renamed", addresses=("10.0.0.1",)), {}, True),
        (NodeFact("renamed", addresses=("10.0.0.9",)), {}, False),
        (NodeFact("renamed", machine_id="m", addresses=("10.0.0.9",)), {"machine_id": "m"}, True),
        (NodeFact("renamed", system_uuid="ab-1"), {"system_uuid": "AB-1"}, True),
    ],
)
def test_a_node_is_found_by_identity_name_or_address(
    inventory: Inventory, fact: NodeFact, machine: dict[str, str], found: bool
) -> None:
    declared = inventory.nodes["n1"]
    facts = (NodeFact("other", addresses=("10.0.0.7",)), fact)
    assert (find_node(facts, declared, **machine) is fact) is found


def test_a_declared_name_is_not_replaced_by_an_address(inventory: Inventory) -> None:
    declared = inventory.nodes["n2"]
    assert find_node((NodeFact("stranger", addresses=("10.0.0.2",)),), declared) is None
