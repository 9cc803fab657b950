"""A cluster on container guests: one server and two agents, really started by systemd.

Ids say what ran as k3s, see `cluster.py`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import FULL_TOKEN, TOKEN, VERSION, WHICH, outcomes, program, ready_nodes
from tests.e2e.site import Site, brought_up, inventory

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and containers"),
    pytest.mark.parametrize("k3s", [WHICH]),
]
SERVER, AGENTS = "198.18.0.11", ("198.18.0.12", "198.18.0.13")


def declared(folder: Path) -> dict[str, Any]:
    """Return a small site whose nodes are a cluster."""
    site = inventory("e2e-c-k3s", nodes=3)
    site["policy"]["allow"] += ["restart-k3s"]
    site["profiles"]["small"]["host_resources"] = []
    site["k3s"] = {"version": VERSION, "binary": str(program(folder)), "disable": ["traefik"]}
    for number, part in enumerate(("server", "agent", "agent"), 1):
        site["nodes"][f"vm-{number}"]["k3s"] = part
    site["nodes"]["vm-2"]["labels"] = {"lab/role": "prefill"}
    return site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Site:
    folder = tmp_path_factory.mktemp("k3s")
    return brought_up(Site(folder / "site", declared(folder)), request)


def test_one_apply_joins_all_nodes(site: Site, k3s: str) -> None:
    done = site.apply("--json").ended(0)
    assert outcomes(done) == {
        "vm-1 k3s_server": "changed",
        "vm-2 k3s_agent": "changed",
        "vm-3 k3s_agent": "changed",
    }
    assert ready_nodes(site, SERVER) == {"vm-1", "vm-2", "vm-3"}
    modes = site.on(SERVER, f"stat -c %a {TOKEN} {FULL_TOKEN} /etc/rancher/k3s/config.yaml")
    assert modes.split() == ["600", "600", "600"]
    assert site.on(AGENTS[0], f"cat {TOKEN}") == site.on(SERVER, f"cat {FULL_TOKEN}"), "it verifies the CA"
    version = site.on(SERVER, "/usr/local/bin/k3s --version")
    assert ("stand-in" in version) is (k3s == "k3s: stand-in")


def test_a_second_apply_changes_nothing_in_one_execution_a_host(site: Site, k3s: str) -> None:
    done = site.apply("--json").ended(0)
    assert set(done.events("run_ended")[0]["outcomes"]) == {"unchanged"}, k3s
    trips = site.trips()
    assert {trips[f"vm-{number}/ssh"] for number in (1, 2, 3)} == {1}


def test_a_new_token_reaches_all_and_stands_on_no_command_line(site: Site, k3s: str) -> None:
    former = site.on(SERVER, f"cat {TOKEN}").strip()
    watch = "while :; do cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' >>/run/seen; done"
    site.on(SERVER, f"( {watch} ) >/dev/null 2>&1 & echo $! >/run/watch")
    site.provision("rotate", site.file, "k3s-token", "--yes", "--json").ended(0)
    seen = site.on(SERVER, "kill $(cat /run/watch); cat /run/seen; rm /run/seen")
    new = site.on(SERVER, f"cat {TOKEN}").strip()
    assert new != former, k3s
    assert new not in seen
    assert former not in seen
    full = site.on(SERVER, f"cat {FULL_TOKEN}")
    assert full.strip().endswith(f"::server:{new}")
    assert {site.on(address, f"cat {TOKEN}") for address in AGENTS} == {full}
    assert former in site.on(SERVER, "cat /etc/rancher/k3s/former-tokens")
    assert ready_nodes(site, SERVER) == {"vm-1", "vm-2", "vm-3"}
    assert set(site.apply("--json").ended(0).events("run_ended")[0]["outcomes"]) == {"unchanged"}


def test_a_killed_k3s_comes_back_and_is_no_drift(site: Site, k3s: str) -> None:
    site.on(AGENTS[1], "systemctl kill -s KILL k3s-agent.service")
    done = site.apply("--json").ended(0)
    assert outcomes(done)["vm-3 k3s_agent"] in {"unchanged", "changed"}, k3s
    assert site.on(AGENTS[1], "systemctl is-active k3s-agent.service") == "active\n"


def test_destroy_removes_the_machines_with_their_cluster(site: Site, k3s: str) -> None:
    assert k3s
    site.provision("destroy", site.file, "--yes").ended(0)
    site.down()
