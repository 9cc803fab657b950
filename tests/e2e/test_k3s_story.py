"""A cluster and its life: a server that dies, another token, a rebuilt node, an upgrade, a sweep.

Virtual machines in `make story-k3s`, containers in `make story-full`. Ids say which, and what ran as k3s, see
`cluster.py`; a real one changes its configuration where the stand-in changes its version.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from provision.lab.k3s.build import write
from tests.e2e.cluster import FULL_TOKEN, REAL, TOKEN, VERSION, WHICH, outcomes, program, ready_nodes
from tests.e2e.site import HYPERVISOR, Done, Site, brought_up, eventually, inventory
from tests.e2e.sweep import sweep

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and virtual machines"),
    pytest.mark.parametrize("k3s", [WHICH]),
]
SERVER, AGENTS = "198.18.0.11", ("198.18.0.12", "198.18.0.13")
ALL = {"vm-1", "vm-2", "vm-3"}
NEWER = "v1.35.8+k3s1"
DATA = "/dev/$(lsblk -bdno NAME,SIZE | awk '$2 == 1073741824 { print $1 }')"
"""The data disk of the first agent: the only one of 1 GiB."""


def declared(folder: Path, driver: str) -> dict[str, Any]:
    site = inventory(f"e2e-k3s-{driver}", nodes=3)
    site["lab"]["driver"] = driver
    site["hypervisors"]["pve"]["host_resources"] = []
    site["policy"]["allow"] += ["restart-k3s", "drain"]
    site["profiles"]["small"] |= {"host_resources": []}
    site["k3s"] = {"version": VERSION, "binary": str(program(folder)), "disable": ["traefik"]}
    for number, part in enumerate(("server", "agent", "agent"), 1):
        site["nodes"][f"vm-{number}"]["k3s"] = part
    site["nodes"]["vm-2"] |= {"labels": {"lab/role": "prefill"}, "disks": [{"size": "1GiB"}]}
    return site


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("container", marks=pytest.mark.full),
        pytest.param("qemu", marks=pytest.mark.k3s),
    ],
)
def site(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Site:
    folder = tmp_path_factory.mktemp("k3s")
    return brought_up(Site(folder / "site", declared(folder, request.param), deadline=3600), request)


def api(site: Site, method: str, path: str) -> Any:
    """Ask the hypervisor, as a person does."""
    token = (site.lab / "keys/token").read_text().strip()
    header = f"Authorization: PVEAPIToken=provision@pve!lab={token}"
    url = f"https://{HYPERVISOR}:8006/api2/json/nodes/pve/qemu/{path}"
    words = ["curl", "-sS", "--noproxy", "*", "--insecure", "-X", method, "--header", header, url]
    return json.loads(site.inside(words))["data"]


def unchanged(site: Site) -> dict[str, int]:
    """Apply again, and return how often each system was asked: nothing changes."""
    done = site.apply("--json").ended(0)
    assert set(done.events("run_ended")[0]["outcomes"]) == {"unchanged"}
    return site.trips()


def test_1_the_server_dies_while_agents_join_and_comes_back(site: Site, k3s: str) -> None:
    process = site.start("apply", site.file, "--yes", "--json")
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        event = json.loads(line)
        if (event["type"], event.get("role")) == ("step_started", "k3s_agent"):
            api(site, "POST", "201/status/stop")  # the plug is pulled
            break
    assert process.poll() is None, "".join(lines)[-3000:]
    eventually(lambda: api(site, "GET", "201/status/current")["status"] == "stopped")
    api(site, "POST", "201/status/start")
    rest, err = process.communicate(timeout=site.deadline)
    done = Done(("apply",), process.returncode, "".join(lines) + rest, err)
    assert done.code in {0, 1}, done.said[-6000:]
    assert "Traceback" not in done.said
    print(f"the run with the dead server ended with {done.code}: {outcomes(done)}")  # noqa: T201 - pytest -s
    site.apply().ended(0)
    assert ready_nodes(site, SERVER) == ALL
    version = site.on(SERVER, "/usr/local/bin/k3s --version")
    assert ("stand-in" in version) is (k3s == "k3s: stand-in")


def test_2_a_second_apply_changes_nothing_in_one_execution_a_host(site: Site, k3s: str) -> None:
    trips = unchanged(site)
    assert {trips[f"{name}/ssh"] for name in ALL} == {1}, (k3s, trips)
    assert unchanged(site) == trips


def test_3_a_new_token_reaches_all_in_one_run(site: Site, k3s: str) -> None:
    former = site.on(SERVER, f"cat {TOKEN}").strip()
    site.provision("rotate", site.file, "k3s-token", "--yes").ended(0)
    full = site.on(SERVER, f"cat {FULL_TOKEN}")
    assert former not in full, k3s
    assert {site.on(address, f"cat {TOKEN}") for address in AGENTS} == {full}
    assert ready_nodes(site, SERVER) == ALL
    unchanged(site)


def test_4_an_agent_is_built_again_with_its_data_disk_and_joins(site: Site, k3s: str) -> None:
    agent = AGENTS[0]
    has_disks = site.declared["lab"]["driver"] == "qemu"
    if has_disks:
        site.on(agent, f"printf kept | dd of={DATA} conv=fsync status=none")
    identity = "cat /etc/machine-id; cat /sys/class/net/e*/address"
    before = site.on(agent, identity).split()
    site.provision("rebuild", site.file, "vm-2").ended(0)
    done = site.apply("--json", "--allow", "replace").ended(0)
    assert outcomes(done)["vm-2 k3s_agent"] == "changed", k3s
    after = site.on(agent, identity).split()
    assert after[0] != before[0], "a new system disk"
    assert after[1] == before[1], "the same device of the network"
    if has_disks:
        assert site.on(agent, f"head -c 4 {DATA}") == "kept"
    assert ready_nodes(site, SERVER) == ALL
    unchanged(site)


def test_5_an_upgrade_goes_node_by_node_and_is_verified_after_each(site: Site, k3s: str) -> None:
    if REAL:
        site.declared["k3s"]["config"] = {"kubelet-arg": ["max-pods=100"]}
    else:
        site.declared["k3s"] |= {"version": NEWER, "binary": str(write(site.folder / "k3s-newer", NEWER))}
    site.write()
    done = site.apply("--json", "--playbook", "upgrade-k3s").ended(0)
    restarts = [event["system"] for event in done.events("effect") if event["effect"] == "restart-k3s"]
    assert restarts == ["vm-1/ssh", "vm-2/ssh", "vm-3/ssh"], k3s
    if not REAL:
        assert all(NEWER in site.on(each, "/usr/local/bin/k3s --version") for each in (SERVER, *AGENTS))
    assert ready_nodes(site, SERVER) == ALL
    unchanged(site)


def test_6_every_damage_of_k3s_is_named_alone_and_repaired(site: Site, k3s: str) -> None:
    roles = ("k3s_server", "k3s_agent", "kubernetes_node")
    report = sweep(site.file, site.lab, site.namespace, site.state, width=2, roles=roles)
    print(report)  # noqa: T201 - pytest -s shows the sweep kind by kind
    assert report.failures == [], k3s
    kinds = {"file", "upload", "k3s-token", "k3s-unit", "kube-node"}
    assert kinds <= set(report.kinds)
    site.provision("verify", site.file).ended(0)


def test_7_nothing_is_left(site: Site, k3s: str) -> None:
    assert k3s
    site.provision("destroy", site.file, "--yes").ended(0)
    site.down()
