"""Traces on nodes: what nobody looks after any more goes, what people have set stays."""

from __future__ import annotations

import pytest

from provision.kube.names import API
from provision.kube.resources.node_traces import NodeTraces
from provision.lab.kube.store import Write
from provision.testing.model_cluster import ModelCluster
from tests.unit.kube.site import bring, changes, paths

TRACES = NodeTraces(API, "gpu_operator", ("nvidia.com/",))


@pytest.fixture
def cluster() -> ModelCluster:
    cluster = ModelCluster()
    labels = {"nvidia.com/gpu.count": "8", "example.org/rack": "3"}
    cluster.add_node("a", "10.0.0.1", labels=labels, allocatable={"nvidia.com/gpu": "0"})
    cluster.add_node("b", "10.0.0.2", allocatable={"nvidia.com/mig-1g.10gb": "7"})
    cluster.add_node("c", "10.0.0.3", labels={"example.org/x": "1"})
    return cluster


def test_keys_go_from_metadata_and_status_and_others_stay(cluster: ModelCluster) -> None:
    assert paths(changes(cluster, TRACES)) == ["- a", "- b"]
    before = cluster.get("Node", "c")
    bring(cluster, TRACES)
    assert changes(cluster, TRACES) == ()
    a, b = cluster.get("Node", "a"), cluster.get("Node", "b")
    assert a is not None
    assert b is not None
    assert a["metadata"]["labels"] == {"kubernetes.io/hostname": "a", "example.org/rack": "3"}
    for node in (a, b):
        for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
            assert amounts == {"cpu": "8", "memory": "16Gi"}
        assert node["status"]["conditions"]
    assert cluster.get("Node", "c") == before


def test_a_label_that_somebody_set_with_kubectl_stays(cluster: ModelCluster) -> None:
    kind, held = cluster.store.kind("Node"), cluster.get("Node", "c")
    assert held is not None
    labels = {**held["metadata"]["labels"], "nvidia.com/gpu.workload.config": "container"}
    made = {**held, "metadata": {**held["metadata"], "labels": labels}}
    cluster.store.update(kind, ("", "c"), made, Write("kubectl-label"))
    assert paths(changes(cluster, TRACES)) == ["- a", "- b"]
