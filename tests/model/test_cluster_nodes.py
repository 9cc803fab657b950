"""A cluster on models: its API is reached through living servers, and its nodes are labelled."""

from __future__ import annotations

from pathlib import Path

from tests.model.k3s_site import TRIO, K3sSite

LABELLED = """\
  s1: { address: 198.51.100.1, k3s: server, labels: { rack: r1 } }
  a1: { address: 198.51.100.11, k3s: agent, taints: ["gpu=yes:NoSchedule"] }
"""
ENDPOINT = ", endpoint: 198.51.100.100"


def labels(site: K3sSite, name: str) -> dict[str, str]:
    node = site.cluster.get("Node", name)
    assert node is not None
    held: dict[str, str] = node["metadata"]["labels"]
    return held


def test_nodes_are_labelled_once_they_have_joined(tmp_path: Path) -> None:
    site = K3sSite(tmp_path, LABELLED)
    report = site.apply()
    assert report.exit_code == 0, [step.diagnostics for step in report.steps]
    assert labels(site, "s1")["rack"] == "r1"
    assert site.plan().empty
    # Labels and taints come with the registration; both Nodes get the note whose they are.
    assert sorted(line.rpartition("/")[2] for line in site.cluster.writes()) == ["a1", "s1"]


def test_a_label_changed_behind_our_back_is_the_only_change(tmp_path: Path) -> None:
    site = K3sSite(tmp_path, LABELLED)
    site.apply()
    labels(site, "s1")["rack"] = "other"
    changed = [str(change.key) for step in site.plan().steps for change in step.changes]
    assert changed == ["cluster/api:kube-node:s1"]


def test_a_node_that_is_declared_later_joins_a_cluster_that_runs(tmp_path: Path) -> None:
    site = K3sSite(tmp_path, LABELLED)
    assert site.apply().exit_code == 0
    another = "  a2: { address: 198.51.100.12, k3s: agent, labels: { rack: r2 } }\n"
    site.declare(tmp_path, LABELLED + another)
    site.add_machine("a2")
    report = site.apply()
    assert report.exit_code == 0, [step.diagnostics for step in report.steps]
    assert labels(site, "a2")["rack"] == "r2"
    assert site.plan().empty


def test_the_api_is_reached_through_another_server_where_one_is_dead(tmp_path: Path) -> None:
    site = K3sSite(tmp_path, TRIO, ENDPOINT)
    assert site.apply().exit_code == 0
    site.declare(tmp_path, TRIO.replace("k3s: agent }", "k3s: agent, labels: { rack: r2 } }"), ENDPOINT)
    site.silent = {"s1"}
    site.apply()
    assert labels(site, "a1")["rack"] == "r2"
