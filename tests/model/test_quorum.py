"""A restart that would cost the quorum of etcd waits; anything else of such a cluster goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.engine.model import RunReport
from provision.k3s import paths
from provision.testing.model_cluster import set_status
from tests.model.k3s_site import PAIR, TRIO, K3sSite

ENDPOINT = ", endpoint: 198.51.100.100"
CHANGED = ENDPOINT + ", config: { kubelet-arg: [v=1] }"


def down(site: K3sSite, name: str) -> None:
    """Let a server be dead, and the cluster know it."""
    site.silent.add(name)
    store, node = site.cluster.store, site.cluster.get("Node", name)
    assert node is not None
    condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    set_status(store, store.kind("Node"), node, {"conditions": [condition]})


def results(report: RunReport) -> dict[str, tuple[str, str]]:
    return {f"{s.id.subject} {s.id.role}": (str(s.outcome), s.reason) for s in report.steps}


@pytest.fixture
def trio(tmp_path: Path) -> K3sSite:
    site = K3sSite(tmp_path, TRIO, ENDPOINT)
    assert site.apply().exit_code == 0
    site.declare(tmp_path, TRIO, CHANGED)
    return site


def test_servers_restart_one_after_the_other_while_all_are_up(trio: K3sSite) -> None:
    report = trio.apply()
    assert report.exit_code == 0, results(report)
    assert trio.plan().empty


def test_no_server_restarts_while_another_one_is_dead(trio: K3sSite) -> None:
    down(trio, "s3")
    starts = {name: trio.hosts[f"{name}/ssh"].state.units[paths.SERVER].read for name in ("s1", "s2")}
    found = results(trio.apply())
    outcome, reason = found["s1 k3s_server"]
    assert outcome == "waiting"
    assert "s3" in reason
    assert found["s2 k3s_server"][0] in {"waiting", "blocked"}
    assert found["a1 k3s_agent"][0] == "waiting", "servers come first"
    for name, read in starts.items():
        assert trio.hosts[f"{name}/ssh"].state.units[paths.SERVER].read == read, "it was not restarted"
    trio.silent.clear()
    node = trio.cluster.get("Node", "s3")
    assert node is not None
    node["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    report = trio.apply()
    assert report.exit_code == 0, results(report)
    assert trio.plan().empty


def test_a_cluster_whose_api_is_silent_has_no_quorum_to_lose(trio: K3sSite) -> None:
    trio.silent.add("cluster")
    found = results(trio.apply())
    assert found["s1 k3s_server"][0] == "changed"


def test_no_wait_fails_while_the_only_server_restarts(tmp_path: Path) -> None:
    site = K3sSite(tmp_path, PAIR)
    assert site.apply().exit_code == 0
    site.declare(tmp_path, PAIR, ", config: { kubelet-arg: [v=1] }")
    report = site.apply()
    assert report.exit_code == 0, results(report)
    assert site.plan().empty
