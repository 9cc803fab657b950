"""A node with another address leaves the cluster and joins again: one server at a time, never a lone one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from provision.api import Options
from provision.engine.model import RunReport
from provision.k3s import paths
from provision.values.errors import Refused
from tests.model.k3s_site import PAIR, TRIO, K3sSite
from tests.model.model_site import DeadError, Life

ENDPOINT = ", endpoint: 198.51.100.100"
MOVED = {"a1": ("198.51.100.11", "198.51.100.61"), "s1": ("198.51.100.1,", "198.51.100.51,")}
MOVED |= {"s2": ("198.51.100.2,", "198.51.100.52,")}
ALLOW = Options(allow=frozenset({"rejoin-k3s", "drain"}))


@dataclass
class Moment(Life):
    """Kills the controller at a moment that a word names."""

    moment: str = ""

    def boundary(self, what: str) -> None:
        super().boundary(what)
        if self.moment in what:
            self.dead = True
            raise DeadError(what)


def problems(report: RunReport) -> list[str]:
    return [f"{d.code} {d.summary} {d.evidence}" for step in report.steps for d in step.diagnostics]


def built(folder: Path, nodes: str, more: str = "") -> K3sSite:
    site = K3sSite(folder, nodes, more)
    report = site.apply()
    assert report.exit_code == 0, problems(report)
    for name in site.inventory.nodes:
        metadata = {"name": f"{name}.node-password.k3s", "namespace": "kube-system"}
        site.cluster.store.seed({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    return site


def move(site: K3sSite, folder: Path, nodes: str, *names: str, more: str = "") -> None:
    """Give machines another address, and declare it."""
    for name in names:
        former, new = MOVED[name]
        nodes = nodes.replace(former, new)
    site.declare(folder, nodes, more)
    for name in names:
        commands = site.hosts[f"{name}/ssh"].state.commands
        commands["link"] = dict.fromkeys(commands["link"], site.inventory.nodes[name].address.encode())


def address(site: K3sSite, name: str) -> list[Any]:
    node = site.cluster.get("Node", name)
    return [] if node is None else [row["address"] for row in node["status"]["addresses"]]


def test_an_agent_that_moved_leaves_and_joins_under_its_new_address(tmp_path: Path) -> None:
    site = built(tmp_path, PAIR)
    volume = f"{paths.DATA}/storage/pvc-1/data"
    site.hosts["a1/ssh"].state.files[volume] = site.hosts["a1/ssh"].state.files[paths.TOKEN]
    move(site, tmp_path, PAIR, "a1")
    plan = site.plan()
    changes = [str(change.key) for step in plan.steps for change in step.changes]
    assert changes[:2] == ["a1/ssh:k3s-membership:k3s-agent.service", "cluster/api:k3s-earlier-node:a1"]
    withheld = site.apply()
    assert withheld.exit_code != 0
    assert "198.51.100.11" in site.text("a1", paths.CONFIG), "nothing is done without consent"
    site.life.log.clear()
    report = site.apply(ALLOW)
    assert report.exit_code == 0, problems(report)
    assert "drain:before" in [step.id.role for step in report.steps]
    assert address(site, "a1") == ["198.51.100.61"]
    assert site.cluster.get("Secret", "a1.node-password.k3s", "kube-system") is None
    assert site.hosts["a1/ssh"].state.units[paths.AGENT].active
    assert volume in site.hosts["a1/ssh"].state.files
    assert site.plan().empty


@pytest.mark.parametrize("name", ["s1", "s2"])
def test_a_server_that_moved_joins_those_that_stay(tmp_path: Path, name: str) -> None:
    site = built(tmp_path, TRIO, ENDPOINT)
    authority = site.cluster_token("s3").partition("::")[0]
    move(site, tmp_path, TRIO, name, more=ENDPOINT)
    report = site.apply(ALLOW)
    assert report.exit_code == 0, problems(report)
    assert address(site, name) == [site.inventory.nodes[name].address]
    assert site.cluster_token(name).partition("::")[0] == authority, "it is the same cluster"
    assert "cluster-init" not in site.text(name, paths.CONFIG)
    assert site.apply(ALLOW).exit_code == 0
    assert site.plan().empty


def test_two_servers_that_moved_go_one_after_the_other(tmp_path: Path) -> None:
    site = built(tmp_path, TRIO, ENDPOINT)
    authority = site.cluster_token("s3").partition("::")[0]
    move(site, tmp_path, TRIO, "s1", "s2", more=ENDPOINT)
    site.life.log.clear()
    report = site.apply(ALLOW)
    assert report.exit_code == 0, problems(report)
    log = [line for line in site.life.log if "LeaveCluster done" in line or "SetUnit done" in line]
    assert [line.partition("/")[0] for line in log] == ["s1", "s1", "s2", "s2"]
    assert "SetUnit" in log[1], "the first one is back before the second one leaves"
    assert {site.cluster_token(server).partition("::")[0] for server in ("s1", "s2")} == {authority}


def test_a_server_waits_while_its_leave_would_cost_the_quorum(tmp_path: Path) -> None:
    site = built(tmp_path, TRIO, ENDPOINT)
    site.silent = {"s3"}
    node = site.cluster.get("Node", "s3")
    assert node is not None
    node["status"]["conditions"][0]["status"] = "Unknown"
    move(site, tmp_path, TRIO, "s2", more=ENDPOINT)
    report = site.apply(ALLOW)
    assert report.exit_code != 0
    assert paths.PASSWORD.path in site.hosts["s2/ssh"].state.files
    assert site.hosts["s2/ssh"].state.units[paths.SERVER].active


def test_the_only_server_is_refused_before_anything_changes(tmp_path: Path) -> None:
    site = built(tmp_path, PAIR)
    move(site, tmp_path, PAIR, "s1")
    with pytest.raises(Refused) as refused:
        site.apply(ALLOW)
    assert [problem.code for problem in refused.value.diagnostics] == ["K3S_SERVER_MOVED"]
    assert "has joined as 198.51.100.1:" in refused.value.diagnostics[0].summary
    assert site.hosts["s1/ssh"].state.units[paths.SERVER].active


@pytest.mark.parametrize(
    "moment",
    [
        "LeaveCluster done",
        "after DELETE /api/v1/namespaces/kube-system/secrets/s1",
        "after DELETE /api/v1/nodes/s1",
        "config.yaml: WriteFile done",
        "k3s.service: SetUnit done",
    ],
)
def test_a_run_that_was_killed_is_finished_by_the_next(tmp_path: Path, moment: str) -> None:
    site = built(tmp_path, TRIO, ENDPOINT)
    authority = site.cluster_token("s3").partition("::")[0]
    move(site, tmp_path, TRIO, "s1", more=ENDPOINT)
    site.life = Moment(moment=moment)
    with pytest.raises(DeadError):
        site.apply(ALLOW)
    site.life = Life()
    for _ in range(2):
        report = site.apply(ALLOW)
        assert report.exit_code == 0, problems(report)
    assert address(site, "s1") == ["198.51.100.51"]
    assert site.cluster_token("s1").partition("::")[0] == authority
    assert site.plan().empty
