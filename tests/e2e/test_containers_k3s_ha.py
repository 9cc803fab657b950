"""Three servers and nine agents on container guests: order of joins, dead machines, quorum, another token.

The stand-in of k3s keeps its state on the first server and does not replicate it, so another one dies here.
Ids say what ran as k3s, see `cluster.py`.
"""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import (
    BALANCER,
    FULL_TOKEN,
    TOKEN,
    VERSION,
    WHICH,
    balanced,
    outcomes,
    program,
    ready_nodes,
)
from tests.e2e.site import Site, brought_up, eventually, inventory

pytestmark = [
    pytest.mark.full,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and containers"),
    pytest.mark.parametrize("k3s", [WHICH]),
]
ALL = {f"vm-{number}": f"198.18.0.{10 + number}" for number in range(1, 13)}
SERVERS = ("vm-1", "vm-2", "vm-3")
AGENTS = tuple(name for name in ALL if name not in SERVERS)
FIRST = ALL[SERVERS[0]]


def declared(folder: Path) -> dict[str, Any]:
    site = inventory("e2e-c-ha", nodes=len(ALL))
    site["policy"]["allow"] += ["restart-k3s"]
    site["profiles"]["small"]["host_resources"] = []
    site["k3s"] = {"version": VERSION, "binary": str(program(folder)), "endpoint": BALANCER}
    for name, node in site["nodes"].items():
        node["k3s"] = "server" if name in SERVERS else "agent"
    return site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("ha")
    site = brought_up(Site(folder / "site", declared(folder)), request)
    balancer = balanced(site, [ALL[name] for name in SERVERS])
    yield site
    balancer.kill()
    balancer.wait()


@contextmanager
def dead(site: Site, name: str) -> Iterator[None]:
    """Let a machine be silent: its cable is cut. It has run for an hour, so nobody waits for its boot."""
    vmid = site.declared["nodes"][name]["vmid"]
    run = site.lab / f"api/run/{vmid}.json"
    run.write_text(json.dumps({**json.loads(run.read_text()), "started": time.time() - 3600}))
    cable = f"v{vmid}i0"
    for state in ("down", "up"):
        argv = ["ip", "-n", site.namespace, "link", "set", cable, state]
        subprocess.run(argv, check=True)
        if state == "down":
            yield


def steps(site: Site, role: str) -> dict[str, tuple[float, float]]:
    """Return when the steps of the latest run began and ended, by subject, as the journal has it."""
    query = (
        "SELECT subject, started, started + seconds FROM steps WHERE role = ?"
        " AND run = (SELECT id FROM runs ORDER BY started DESC LIMIT 1)"
    )
    with sqlite3.connect(site.state / "journal.sqlite") as journal:
        return {name: (began, ended) for name, began, ended in journal.execute(query, (role,))}


def configure(site: Site, pods: int) -> None:
    """Declare another configuration, for which each node restarts k3s."""
    site.declared["k3s"]["config"] = {"kubelet-arg": [f"max-pods={pods}"]}
    site.write()


def test_servers_join_one_at_a_time_and_agents_after_them(site: Site, k3s: str) -> None:
    done = site.apply("--json").ended(0)
    joined = {f"{name} k3s_server" for name in SERVERS} | {f"{name} k3s_agent" for name in AGENTS}
    assert outcomes(done) == dict.fromkeys(joined, "changed"), k3s
    servers, agents = steps(site, "k3s_server"), steps(site, "k3s_agent")
    assert set(servers) == set(SERVERS)
    assert set(agents) == set(AGENTS)
    for former, later in itertools.pairwise(SERVERS):
        assert servers[former][1] <= servers[later][0], servers
    assert max(ended for _, ended in servers.values()) <= min(began for began, _ in agents.values())
    assert ready_nodes(site, FIRST) == set(ALL)
    assert len({site.on(ALL[name], f"cat {FULL_TOKEN}") for name in SERVERS}) == 1


def test_a_second_apply_changes_nothing_in_one_execution_a_host(site: Site, k3s: str) -> None:
    done = site.apply("--json").ended(0)
    assert set(done.events("run_ended")[0]["outcomes"]) == {"unchanged"}, k3s
    trips = site.trips()
    assert {trips[f"{name}/ssh"] for name in ALL} == {1}


def test_a_dead_agent_blocks_nobody_else(site: Site, k3s: str) -> None:
    configure(site, 120)
    with dead(site, "vm-12"):
        done = site.apply("--json").ended(1)
        reached = outcomes(done)
        assert reached.pop("vm-12 k3s_agent", "unreached") == "unreached", k3s
        assert set(reached.values()) == {"changed"}, reached
        assert len(reached) == len(ALL) - 1
    done = eventually(lambda: (ended := site.apply("--json")).code == 0 and ended)
    assert outcomes(done)["vm-12 k3s_agent"] == "changed"


def test_a_dead_server_blocks_nobody_else_but_no_other_one_restarts(site: Site, k3s: str) -> None:
    damaged = ("vm-3", *AGENTS)
    for name in damaged:
        site.on(ALL[name], "chmod 0640 /etc/rancher/k3s/config.yaml")
    with dead(site, "vm-2"):
        eventually(lambda: "vm-2" not in ready_nodes(site, FIRST))
        reached = outcomes(site.apply("--json").ended(1))
        assert {name.split()[0] for name, outcome in reached.items() if outcome == "changed"} == set(damaged)
        assert (reached["vm-1 k3s_server"], reached["vm-2 k3s_server"]) == ("unchanged", "unreached"), k3s
        configure(site, 130)
        done = site.apply("--json").ended(1)
        assert outcomes(done)["vm-1 k3s_server"] == "waiting"
        assert "waits for vm-2: what is left would not be enough" in done.out
        assert "changed" not in outcomes(done).values(), "agents follow their servers"
    eventually(lambda: "vm-2" in ready_nodes(site, FIRST))
    assert set(outcomes(site.apply("--json").ended(0)).values()) == {"changed"}
    servers = steps(site, "k3s_server")
    for former, later in itertools.pairwise(SERVERS):
        assert servers[former][1] <= servers[later][0], servers


def test_a_new_token_reaches_all_in_one_run(site: Site, k3s: str) -> None:
    former = site.on(FIRST, f"cat {TOKEN}").strip()
    site.provision("rotate", site.file, "k3s-token", "--yes").ended(0)
    full = site.on(FIRST, f"cat {FULL_TOKEN}")
    assert former not in full, k3s
    assert {site.on(ALL[name], f"cat {TOKEN}") for name in (*SERVERS[1:], *AGENTS)} == {full}
    assert ready_nodes(site, FIRST) == set(ALL)
    assert set(site.apply("--json").ended(0).events("run_ended")[0]["outcomes"]) == {"unchanged"}


def test_nothing_of_the_lab_is_left(site: Site, k3s: str) -> None:
    assert k3s
    site.down()
