"""A cluster on models: built, changed, rotated, with dead machines, and removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.api import Options
from provision.engine.model import RunReport
from provision.inventory.models.node import Node
from provision.k3s import paths
from provision.k3s.configuration import registration
from provision.testing.model_host import ModelFile
from provision.testing.model_k3s import KUBELET
from tests.model.k3s_site import PAIR, TRIO, K3sSite

ENDPOINT = ", endpoint: 198.51.100.100"


def outcomes(report: RunReport) -> dict[str, str]:
    return {f"{step.id.subject} {step.id.role}": str(step.outcome) for step in report.steps}


def problems(report: RunReport) -> list[str]:
    return [f"{d.code} {d.summary} {d.evidence}" for step in report.steps for d in step.diagnostics]


def test_the_first_apply_joins_the_agent_and_the_second_changes_nothing(tmp_path: Path) -> None:
    site = K3sSite(tmp_path)
    late = {
        f"{step.step.id.subject} {step.step.id.role}": step.late for step in site.plan().steps if step.late
    }
    assert late == {
        "a1 k3s_agent": "after s1: k3s_server",
        "s1 kubernetes_node": "after s1: k3s_server",
        "a1 kubernetes_node": "after a1: k3s_agent",
    }
    report = site.apply()
    assert report.exit_code == 0, problems(report)
    assert site.hosts["a1/ssh"].state.units[paths.AGENT].active
    assert site.text("a1", paths.TOKEN).strip() == site.cluster_token("s1"), "the joiner verifies the CA"
    assert site.text("s1", paths.TOKEN).strip() == site.token("s1"), "the first server gets the bare token"
    second = site.apply()
    assert {str(step.outcome) for step in second.steps} == {"unchanged"}
    assert second.trips == {"s1/ssh": 1, "a1/ssh": 1, "cluster/api": 2}, "nodes, and our namespaces"


@pytest.fixture
def trio(tmp_path: Path) -> K3sSite:
    site = K3sSite(tmp_path, TRIO, ENDPOINT)
    report = site.apply()
    assert report.exit_code == 0, problems(report)
    return site


def test_servers_join_one_at_a_time_and_agents_after_them(tmp_path: Path) -> None:
    site = K3sSite(tmp_path, TRIO, ENDPOINT)
    report = site.apply()
    assert report.exit_code == 0, problems(report)
    starts = [line.partition("/")[0] for line in site.life.log if "SetUnit done" in line]
    assert list(dict.fromkeys(starts))[:3] == ["s1", "s2", "s3"]
    assert "cluster-init: true" in site.text("s1", paths.CONFIG)
    assert "server: https://198.51.100.1:6443" in site.text("s2", paths.CONFIG)
    assert "server: https://198.51.100.100:6443" in site.text("a1", paths.CONFIG)
    assert len({site.cluster_token(name) for name in ("s1", "s2", "s3")}) == 1
    assert site.plan().empty


@pytest.mark.parametrize("dead", ["s1", "s2", "a1"])
def test_one_dead_machine_blocks_nobody_else(trio: K3sSite, dead: str) -> None:
    trio.silent = {dead}
    for name in ("s1", "s2", "s3", "a1", "a2"):
        if name != dead:
            trio.hosts[f"{name}/ssh"].state.files.pop(paths.REGISTRIES, None)
            trio.hosts[f"{name}/ssh"].state.files[paths.BINARY].mode = "0700"
    report = outcomes(trio.apply())
    unreached = {name for name, outcome in report.items() if outcome == "unreached"}
    assert {name.split()[0] for name in unreached} == {dead}
    changed = {name.split()[0] for name, outcome in report.items() if outcome == "changed"}
    assert changed == {"s1", "s2", "s3", "a1", "a2"} - {dead}


def test_a_first_server_that_lost_its_disk_joins_the_others(trio: K3sSite) -> None:
    before = trio.cluster_token("s2")
    trio.rebuild("s1")
    report = trio.apply()
    assert report.exit_code == 0, problems(report)
    assert "cluster-init" not in trio.text("s1", paths.CONFIG)
    assert "server: https://198.51.100.2:6443" in trio.text("s1", paths.CONFIG)
    assert trio.cluster_token("s1") == before
    assert trio.plan().empty


def test_no_second_cluster_is_made_while_another_server_is_silent(trio: K3sSite) -> None:
    trio.rebuild("s1")
    trio.rebuild("s3")
    trio.silent = {"s2"}
    report = outcomes(trio.apply())
    assert report["s1 k3s_server"] == "unreached"
    assert paths.CONFIG not in trio.hosts["s1/ssh"].state.files


def test_a_rotation_reaches_the_cluster_before_any_file(trio: K3sSite) -> None:
    before = trio.token("s1")
    trio.life.log.clear()
    report = trio.rotate()
    assert report.exit_code == 0, problems(report)
    after = {trio.token(name) for name in ("s1", "s2", "s3", "a1", "a2")}
    assert after == {trio.cluster_token("s1").rpartition(":")[2]}
    assert before not in after
    assert before in trio.text("s1", paths.FORMER_TOKENS), "snapshots of before need it"
    order = [line for line in trio.life.log if "RotateToken" in line or f"{paths.TOKEN}: WriteFile" in line]
    names = [line.split("/")[0] for line in order]
    assert names[:4] == ["s1", "s1", "s2", "s3"]
    assert set(names[4:]) == {"a1", "a2"}
    assert "RotateToken" in order[0]
    assert trio.plan().empty


def test_a_changed_configuration_restarts_each_node(trio: K3sSite, tmp_path: Path) -> None:
    trio.declare(tmp_path, TRIO, ENDPOINT + ", disable: [traefik]")
    plan = trio.plan()
    changed = {planned.step.id.subject for planned in plan.steps if planned.changes}
    assert changed == {"s1", "s2", "s3"}
    report = trio.apply()
    assert report.exit_code == 0, problems(report)
    assert "traefik" in trio.text("s3", paths.CONFIG)
    assert trio.plan().empty


def test_what_somebody_removed_of_k3s_comes_back_alone(tmp_path: Path) -> None:
    site = K3sSite(tmp_path, PAIR.replace("k3s: agent }", "k3s: agent, labels: { a: b } }"))
    assert site.apply().exit_code == 0
    token = site.cluster_token("s1")
    removed = set()
    for name, unit in (("s1", paths.SERVER), ("a1", paths.AGENT)):
        ours = [paths.BINARY, paths.TOKEN, paths.CONFIG, paths.environment_file(unit), paths.unit_file(unit)]
        for path in (*ours, *([paths.REGISTRATION] if name == "a1" else [])):
            del site.hosts[f"{name}/ssh"].state.files[path]
            removed.add(f"{name} {path}")
    report = site.apply()
    assert report.exit_code == 0, problems(report)
    changed = {
        f"{change.key.system.partition('/')[0]} {change.key.name}"
        for step in report.steps
        for change in step.changed
    }
    assert changed == removed
    assert site.cluster_token("s1") == token, "the cluster keeps its token"
    assert site.plan().empty


def test_labels_of_a_node_cost_no_restart(trio: K3sSite, tmp_path: Path) -> None:
    nodes = TRIO.replace("k3s: agent }", "k3s: agent, labels: { a: b } }")
    trio.declare(tmp_path, nodes, ENDPOINT)
    trio.life.log.clear()
    assert trio.apply().exit_code == 0
    assert not [line for line in trio.life.log if "restart-k3s" in line]
    assert "a=b" in trio.text("a1", paths.REGISTRATION)


def test_a_node_that_leaves_the_cluster_is_cleaned(tmp_path: Path) -> None:
    site = K3sSite(tmp_path)
    assert site.apply().exit_code == 0
    site.declare(tmp_path, PAIR.replace(", k3s: agent", ", timezone: UTC"))
    report = site.apply()
    assert report.exit_code == 0, problems(report)
    files = site.hosts["a1/ssh"].state.files
    assert not [path for path in files if "k3s" in path or "rancher" in path]
    assert site.plan().empty


def test_the_unit_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    site = K3sSite(tmp_path, PAIR + "  x1: { address: 198.51.100.20, timezone: UTC }\n")
    foreign = paths.unit_file(paths.AGENT)
    site.hosts["x1/ssh"].state.files[foreign] = type(site.hosts["x1/ssh"].state.files["/etc/hosts"])(
        b"[Unit]\n"
    )
    assert site.apply().exit_code == 0
    assert foreign in site.hosts["x1/ssh"].state.files


@pytest.mark.parametrize("name", ["a1", "s3"])
def test_a_machine_with_a_new_disk_joins_under_its_old_name(trio: K3sSite, name: str) -> None:
    store = trio.cluster.api.store
    metadata = {"name": f"{name}.node-password.k3s", "namespace": "kube-system"}
    store.seed({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    trio.cluster.add_node(name, trio.inventory.nodes[name].address, machine_id="a" * 32)
    trio.rebuild(name)
    trio.hosts[f"{name}/ssh"].state.files["/etc/machine-id"] = ModelFile(b"b" * 32 + b"\n")
    report = trio.apply()
    assert report.exit_code == 0, problems(report)
    assert trio.cluster.get("Secret", f"{name}.node-password.k3s", "kube-system") is None
    node = trio.cluster.get("Node", name)
    assert node is not None
    assert node["status"]["nodeInfo"]["machineID"] != "a" * 32
    assert trio.plan().empty


def test_an_agents_certificate_that_ends_soon_is_told(tmp_path: Path) -> None:
    site = K3sSite(tmp_path)
    assert site.apply().exit_code == 0
    site.verifier = None  # the real checks
    told: dict[bytes, str] = {}
    for content in (b"valid", b"soon"):
        site.hosts["a1/ssh"].state.files[KUBELET].content = content
        checks = site.verify(Options(targets=("a1",))).checks
        told[content] = next(
            f"{one.outcome} {one.message}"
            for one in checks
            if (one.check, one.subject) == ("test_k3s_certificate", "a1")
        )
    assert told[b"valid"].startswith("proven")
    assert "a restart of k3s renews it" in told[b"soon"], told


def test_labels_of_kubernetes_itself_come_through_the_api_alone(tmp_path: Path) -> None:
    labels = "labels: { node-role.kubernetes.io/worker: 'true', nvidia.com/gpu.workload: x, plain: y }"
    site = K3sSite(tmp_path, PAIR.replace("k3s: agent }", f"k3s: agent, {labels} }}"))
    report = site.apply()
    assert report.exit_code == 0, problems(report)
    text = site.text("a1", paths.REGISTRATION)
    assert "node-role" not in text, "no kubelet starts with it"
    assert "nvidia.com/gpu.workload=x" in text
    node = site.cluster.get("Node", "a1")
    assert node is not None
    assert node["metadata"]["labels"]["node-role.kubernetes.io/worker"] == "true"
    assert site.plan().empty


@pytest.mark.parametrize(
    ("label", "registers"),
    [
        ("topology.kubernetes.io/zone", False),
        ("kubernetes.io/role", False),
        ("x.k8s.io/a", False),
        ("my-kubernetes.io/a", True),
        ("kubernetes.io.example.org/a", True),
        ("rack", True),
    ],
)
def test_which_labels_a_node_registers_with(label: str, *, registers: bool) -> None:
    node = Node(address="198.51.100.1", labels={label: "a"})
    assert bool(registration(node)) is registers
