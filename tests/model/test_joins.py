"""What must be right before a node joins its cluster, on models of machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.engine.model import RunReport
from provision.k3s import paths
from provision.k3s.join_network import JoinNetworkStatus, ResolverFile
from provision.values.errors import Refused
from tests.model.k3s_site import TRIO, K3sSite

FILES = (ResolverFile("/etc/resolv.conf", servers=("198.18.0.1",)),)
BLOCKED = JoinNetworkStatus(files=FILES, api={"198.51.100.1": "silent"})


def problems(report: RunReport) -> list[str]:
    return [f"{d.code} {d.summary} {d.evidence}" for step in report.steps for d in step.diagnostics]


def codes(error: Refused) -> list[str]:
    return [diagnostic.code for diagnostic in error.diagnostics]


def starts(site: K3sSite, name: str) -> bool:
    unit = site.hosts[f"{name}/ssh"].state.units.get(paths.AGENT)
    return unit is not None and unit.active


def test_an_agent_that_cannot_reach_its_server_does_not_start(tmp_path: Path) -> None:
    site = K3sSite(tmp_path)
    site.hosts["a1/ssh"].state.join_network = BLOCKED
    report = site.apply()
    assert report.exit_code != 0
    assert "K3S_API_UNREACHABLE" in " ".join(problems(report))
    assert not starts(site, "a1")
    # With the server up, the next plan refuses before it touches anything.
    with pytest.raises(Refused) as refused:
        site.apply()
    assert codes(refused.value) == ["K3S_API_UNREACHABLE"]
    site.hosts["a1/ssh"].state.join_network = None
    assert site.apply().exit_code == 0
    assert starts(site, "a1")


def test_a_node_that_has_joined_is_asked_nothing_more(tmp_path: Path) -> None:
    site = K3sSite(tmp_path, TRIO, ", endpoint: 198.51.100.1")
    assert site.apply().exit_code == 0
    # It knows all servers by now, so that one which is silent keeps it from nothing.
    state = site.hosts["a1/ssh"].state
    state.join_network = BLOCKED
    state.units[paths.AGENT].active = False
    site.silent = {"s1"}
    site.apply()
    assert starts(site, "a1")


def test_silent_name_servers_refuse_before_anything_is_changed(tmp_path: Path) -> None:
    site = K3sSite(tmp_path)
    site.hosts["a1/ssh"].state.join_network = JoinNetworkStatus(files=FILES, names={"198.18.0.1": "silent"})
    with pytest.raises(Refused) as refused:
        site.apply()
    assert codes(refused.value) == ["NODE_DNS_SILENT"]
    assert paths.BINARY not in site.hosts["s1/ssh"].state.files


RAILS = """
  s1: { address: 198.51.100.1, k3s: server, rails: { r0: { device: eth1 } } }
  a1: { address: 198.51.100.11, rails: { r0: { device: eth1 } } }
  a2: { address: 198.51.100.12 }
"""


@pytest.mark.parametrize(("of", "to"), [("s1", "a1"), ("a1", "s1")])
@pytest.mark.parametrize(
    ("lacks", "words"), [("route", "has no route to"), ("answer", "gets no answer from")]
)
def test_neighbours_with_rails_must_reach_each_other_both_ways(
    tmp_path: Path, of: str, to: str, lacks: str, words: str
) -> None:
    site = K3sSite(tmp_path, RAILS)
    address = str(site.inventory.nodes[to].address)
    state = site.hosts[f"{of}/ssh"].state
    state.unreached = {address: lacks}
    with pytest.raises(Refused) as refused:
        site.apply()
    (problem,) = refused.value.diagnostics
    assert (problem.code, problem.summary) == ("PEER_UNREACHABLE", f"{of} {words} {to} at {address}")
    assert paths.BINARY not in site.hosts["s1/ssh"].state.files
    # A machine without ping(8) is not judged, and one without rails and k3s is asked nothing.
    state.unreached = {address: "program", "198.51.100.12": "route"}
    assert "PEER_UNREACHABLE" not in [warning.code for warning in site.plan().warnings]


def test_a_dead_machine_keeps_its_neighbour_from_nothing(tmp_path: Path) -> None:
    site = K3sSite(tmp_path, RAILS)
    site.hosts["s1/ssh"].state.unreached = {"198.51.100.11": "answer"}
    site.silent = {"a1"}
    site.apply()
    assert paths.SERVER in site.hosts["s1/ssh"].state.units
