"""Nodes of the cluster whose machines have left the inventory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provision.api import Options
from provision.contracts.driver import Verdict
from provision.k3s.resources.node import LeftNode
from provision.kube.names import API, OWNER
from provision.lab.kube.app import Request, Response
from provision.testing.model_cluster import ModelCluster, set_status
from tests.model.k3s_site import PAIR, K3sSite
from tests.unit.kube.site import bring

ALONE = PAIR.partition("  a1:")[0]
OUTSIDE = PAIR.replace(", k3s: agent", ", timezone: UTC")
LEFT = "cluster/api:k3s-left-node:a1"
PRUNE = Options(prune=True)
SECRET = "a1.node-password.k3s"


def silence(cluster: ModelCluster, name: str) -> None:
    """Let the cluster see that a kubelet does not report any more."""
    store = cluster.store
    node = cluster.get("Node", name)
    assert node is not None
    down = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    set_status(store, store.kind("Node"), node, {"conditions": [down]})


def later(cluster: ModelCluster, name: str, reads: int) -> Callable[[Request], Response | None]:
    """Return what silences a node once it was read some times."""
    seen: list[str] = []

    def fault(request: Request) -> Response | None:
        if request.method == "GET" and request.path.endswith(f"/nodes/{name}"):
            seen.append(request.path)
            if len(seen) == reads:
                silence(cluster, name)
        return None

    return fault


def members(site: K3sSite) -> str:
    """Return how the check of the cluster's members ends."""
    site.verifier = None  # the real checks
    report = site.verify(Options(targets=("cluster",)))
    return next(
        f"{one.outcome} {one.message}" for one in report.checks if one.check == "test_cluster_members"
    )


@pytest.fixture
def pair(tmp_path: Path) -> K3sSite:
    site = K3sSite(tmp_path)
    assert site.apply().exit_code == 0
    site.cluster.add_node("stranger", "198.51.100.99")
    metadata = {"name": SECRET, "namespace": "kube-system"}
    site.cluster.store.seed({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    return site


def notes(site: K3sSite, name: str) -> dict[str, Any]:
    node = site.cluster.get("Node", name)
    assert node is not None
    found: dict[str, Any] = node["metadata"].get("annotations", {})
    return found


def test_declared_nodes_are_marked_and_no_orphans(pair: K3sSite) -> None:
    assert notes(pair, "a1")[OWNER] == pair.inventory.name
    assert OWNER not in notes(pair, "stranger")
    plan = pair.plan()
    assert (plan.orphans, plan.empty) == ((), True)


def test_a_node_that_left_is_shown_and_stays_without_prune(pair: K3sSite, tmp_path: Path) -> None:
    pair.declare(tmp_path, ALONE)
    silence(pair.cluster, "a1")
    assert pair.plan().orphans == (LEFT,)
    assert pair.apply().exit_code == 0
    assert pair.cluster.get("Node", "a1") is not None


def test_prune_removes_it_and_its_password_and_nobody_elses(pair: K3sSite, tmp_path: Path) -> None:
    pair.declare(tmp_path, ALONE)
    silence(pair.cluster, "a1")
    assert pair.apply(PRUNE).exit_code == 0
    assert pair.cluster.get("Node", "a1") is None
    assert pair.cluster.get("Secret", SECRET, "kube-system") is None
    assert pair.cluster.get("Node", "stranger") is not None
    assert pair.plan().orphans == ()
    pair.cluster.store.delete(pair.cluster.store.kind("Node"), ("", "stranger"))
    assert members(pair).startswith("proven")


def test_a_machine_that_still_runs_k3s_is_waited_for(pair: K3sSite, tmp_path: Path) -> None:
    pair.declare(tmp_path, ALONE)
    pair.cluster.api.faults.append(later(pair.cluster, "a1", 3))
    assert pair.apply(PRUNE).exit_code == 0
    assert pair.cluster.get("Node", "a1") is None


def test_a_node_of_a_machine_that_never_falls_silent_stays(pair: K3sSite) -> None:
    result = bring(pair.cluster, LeftNode(API, "a1", seconds=0.0))[0]
    assert result.verdict is Verdict.FAILED
    assert result.diagnostic is not None
    assert result.diagnostic.code == "NODE_STILL_RUNS"
    assert pair.cluster.get("Node", "a1") is not None
    assert pair.cluster.get("Secret", SECRET, "kube-system") is not None


def test_a_declared_machine_that_is_no_node_any_more_is_pruned(pair: K3sSite, tmp_path: Path) -> None:
    pair.declare(tmp_path, OUTSIDE)
    assert pair.apply().exit_code == 0  # k3s goes from the machine
    silence(pair.cluster, "a1")
    assert pair.plan().orphans == (LEFT,)
    assert pair.apply(PRUNE).exit_code == 0
    assert pair.cluster.get("Node", "a1") is None


@pytest.mark.parametrize("kept", [OUTSIDE.replace("timezone", "manage: false, timezone"), PAIR])
def test_a_declared_or_unmanaged_machine_keeps_its_node(pair: K3sSite, tmp_path: Path, kept: str) -> None:
    pair.declare(tmp_path, kept)
    silence(pair.cluster, "a1")
    assert pair.plan().orphans == ()


def test_the_nodes_of_another_inventory_are_its_own(pair: K3sSite, tmp_path: Path) -> None:
    notes(pair, "a1")[OWNER] = "other"
    pair.declare(tmp_path, ALONE)
    assert pair.plan().orphans == ()
