"""Traces on nodes: what nobody looks after any more goes, what people have set stays."""

from __future__ import annotations

import pytest

from provision.contracts.driver import Verdict
from provision.kube.names import API
from provision.kube.resources.node_traces import NodeTraces
from provision.lab.kube.app import Request
from provision.lab.kube.store import Write
from provision.testing.model_cluster import ModelCluster
from tests.unit.kube.site import bring, changes, paths

TRACES = NodeTraces(API, "gpu_operator", ("nvidia.com/",))


@pytest.fixture
def cluster() -> ModelCluster:
    cluster = ModelCluster()
    labels = {"nvidia.com/gpu.count": "8", "example.org/rack": "3"}
    cluster.add_node("a", "10.0.0.1", labels=labels, allocatable={"nvidia.com/gpu": "0"})
    cluster.add_node("b", "10.0.0.2", allocatable={"nvidia.com/mig-1g.10gb": "0"})
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


def _amount(cluster: ModelCluster, amount: str, **condition: str) -> None:
    held = cluster.get("Node", "b")
    assert held is not None
    status = {**held["status"], "capacity": {"cpu": "8", "memory": "16Gi", "nvidia.com/mig-1g.10gb": amount}}
    status["conditions"] = [{**row, **condition} for row in status["conditions"]]
    cluster.store.seed({**held, "status": status})


def test_a_kubelet_that_still_knows_a_plugin_is_waited_for(cluster: ModelCluster) -> None:
    """That of Kubernetes 1.36.2 writes the amount back for five minutes after the plugin's end."""
    _amount(cluster, "7")
    looks: list[str] = []

    def forget(request: Request) -> None:
        if request.method == "GET" and request.path.endswith("/nodes/b"):
            looks.append(request.path)
            if len(looks) == 3:
                _amount(cluster, "0")

    cluster.api.faults.append(forget)
    emitted: list[str] = []
    assert bring(cluster, TRACES, emitted=emitted)[0].verdict is Verdict.DONE
    assert len(looks) == 3
    assert any("its kubelet still knows the plugin of nvidia.com/mig-1g.10gb" in line for line in emitted)
    assert changes(cluster, TRACES) == ()


def test_a_kubelet_that_does_not_report_is_not_waited_for(cluster: ModelCluster) -> None:
    _amount(cluster, "7", status="Unknown")
    assert bring(cluster, TRACES)[0].verdict is Verdict.DONE
    assert changes(cluster, TRACES) == ()


def test_a_label_that_somebody_set_with_kubectl_stays(cluster: ModelCluster) -> None:
    kind, held = cluster.store.kind("Node"), cluster.get("Node", "c")
    assert held is not None
    labels = {**held["metadata"]["labels"], "nvidia.com/gpu.workload.config": "container"}
    made = {**held, "metadata": {**held["metadata"], "labels": labels}}
    cluster.store.update(kind, ("", "c"), made, Write("kubectl-label"))
    assert paths(changes(cluster, TRACES)) == ["- a", "- b"]
