"""A cluster and its life: a server that dies, another token, a rebuilt node, an upgrade, a sweep.

Virtual machines in `make story-k3s`, containers in `make story-full`. Ids say which, and what ran as k3s, see
`cluster.py`; a real one changes its configuration where the stand-in changes its version. Each stage can run
alone (`-k test_4`): where the ones before did not leave the cluster as declared, an apply does. All of it may
take an hour.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from provision.lab.k3s.build import write
from tests.e2e.cluster import FULL_TOKEN, REAL, TOKEN, VERSION, WHICH, outcomes, program, ready_nodes
from tests.e2e.evidence import ask
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
SECONDS = 3600.0
"""What all stages may take, with machines that are emulated."""
STATE = """
uptime; free -m; df -h / | tail -n 1; systemctl --no-pager --plain list-units --all 'k3s*' | head -n 4
systemctl --no-pager --failed; journalctl --no-pager --quiet -o short-monotonic -n 25 -u k3s -u k3s-agent
"""
"""What a failure tells of a machine."""


@dataclass
class Cluster(Site):
    """A site whose time is limited as a whole.

    Args:
        end: until when its last command must have ended, by the monotonic clock.
        is_settled: whether the last stage left it as declared.
    """

    end: float = field(default_factory=lambda: time.monotonic() + SECONDS)
    is_settled: bool = False

    def limit(self) -> None:
        """Give each command of a stage the time that is left for all."""
        self.deadline = self.end - time.monotonic()
        assert self.deadline > 0, f"all stages together took more than {SECONDS:.0f} s"

    def are_ready(self) -> None:
        """Wait until all nodes are ready: a loaded machine may speak late."""
        eventually(lambda: ready_nodes(self, SERVER) == ALL)


def state_of(site: Site, address: str) -> str:
    """Return what a machine of a lab that is there says of itself."""
    if not site.lab.exists():
        return ""
    before, site.deadline = site.deadline, 60.0
    try:
        return site.on(address, STATE)
    finally:
        site.deadline = before


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
def lab(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Cluster:
    folder = tmp_path_factory.mktemp("k3s")
    site = Cluster(folder / "site", declared(folder, request.param), deadline=SECONDS)
    for address in (SERVER, *AGENTS):
        ask(f"k3s on {address}", partial(state_of, site, address))
    brought_up(site, request)
    return site


@pytest.fixture
def site(lab: Cluster) -> Iterator[Cluster]:
    """The lab as the stage before left it."""
    lab.limit()
    yield lab
    lab.deadline = 300.0  # of the lab's end


@pytest.fixture
def cluster(site: Cluster) -> Cluster:
    """The cluster as it is declared, whichever stages ran before."""
    if not site.is_settled:
        site.apply("--allow", "replace").ended(0)
        site.limit()
    site.is_settled = False
    return site


def api(site: Site, method: str, path: str) -> Any:
    """Ask the hypervisor, as a person does."""
    token = (site.lab / "keys/token").read_text().strip()
    header = f"Authorization: PVEAPIToken=provision@pve!lab={token}"
    url = f"https://{HYPERVISOR}:8006/api2/json/nodes/pve/qemu/{path}"
    words = ["curl", "-sS", "--noproxy", "*", "--insecure", "-X", method, "--header", header, url]
    return json.loads(site.inside(words))["data"]


def unchanged(site: Cluster) -> dict[str, int]:
    """Apply again, and return how often each system was asked: nothing changes."""
    done = site.apply("--json").ended(0)
    assert set(done.events("run_ended")[0]["outcomes"]) == {"unchanged"}, outcomes(done)
    site.is_settled = True
    return site.trips()


def test_1_the_server_dies_while_agents_join_and_comes_back(site: Cluster, k3s: str) -> None:
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
    site.are_ready()
    version = site.on(SERVER, "/usr/local/bin/k3s --version")
    assert ("stand-in" in version) is (k3s == "k3s: stand-in")
    site.is_settled = True


def test_2_a_second_apply_changes_nothing_in_one_execution_a_host(cluster: Cluster, k3s: str) -> None:
    trips = unchanged(cluster)
    assert {trips[f"{name}/ssh"] for name in ALL} == {1}, (k3s, trips)
    assert unchanged(cluster) == trips


def test_3_a_new_token_reaches_all_in_one_run(cluster: Cluster, k3s: str) -> None:
    former = cluster.on(SERVER, f"cat {TOKEN}").strip()
    cluster.provision("rotate", cluster.file, "k3s-token", "--yes").ended(0)
    full = cluster.on(SERVER, f"cat {FULL_TOKEN}")
    assert former not in full, k3s
    assert {cluster.on(address, f"cat {TOKEN}") for address in AGENTS} == {full}
    cluster.are_ready()
    unchanged(cluster)


def test_4_an_agent_is_built_again_with_its_data_disk_and_joins(cluster: Cluster, k3s: str) -> None:
    agent = AGENTS[0]
    has_disks = cluster.declared["lab"]["driver"] == "qemu"
    if has_disks:
        cluster.on(agent, f"printf kept | dd of={DATA} conv=fsync status=none")
    identity = "cat /etc/machine-id; cat /sys/class/net/e*/address"
    before = cluster.on(agent, identity).split()
    cluster.provision("rebuild", cluster.file, "vm-2").ended(0)
    done = cluster.apply("--json", "--allow", "replace").ended(0)
    assert outcomes(done)["vm-2 k3s_agent"] == "changed", k3s
    after = cluster.on(agent, identity).split()
    assert after[0] != before[0], "a new system disk"
    assert after[1] == before[1], "the same device of the network"
    if has_disks:
        assert cluster.on(agent, f"head -c 4 {DATA}") == "kept"
    cluster.are_ready()
    unchanged(cluster)


def test_5_an_upgrade_goes_node_by_node_and_is_verified_after_each(cluster: Cluster, k3s: str) -> None:
    if REAL:
        cluster.declared["k3s"]["config"] = {"kubelet-arg": ["max-pods=100"]}
    else:
        cluster.declared["k3s"] |= {
            "version": NEWER,
            "binary": str(write(cluster.folder / "k3s-newer", NEWER)),
        }
    cluster.write()
    done = cluster.apply("--json", "--playbook", "upgrade-k3s").ended(0)
    restarts = [event["system"] for event in done.events("effect") if event["effect"] == "restart-k3s"]
    assert restarts == ["vm-1/ssh", "vm-2/ssh", "vm-3/ssh"], k3s
    if not REAL:
        assert all(NEWER in cluster.on(each, "/usr/local/bin/k3s --version") for each in (SERVER, *AGENTS))
    cluster.are_ready()
    unchanged(cluster)


def test_6_every_damage_of_k3s_is_named_alone_and_repaired(cluster: Cluster, k3s: str) -> None:
    roles = ("k3s_server", "k3s_agent", "kubernetes_node")
    seconds = cluster.deadline
    report = sweep(
        cluster.file, cluster.lab, cluster.namespace, cluster.state, width=2, roles=roles, seconds=seconds
    )
    print(report)  # noqa: T201 - pytest -s shows the sweep kind by kind
    assert report.failures == [], k3s
    kinds = {"file", "upload", "k3s-token", "k3s-unit", "kube-node"}
    assert kinds <= set(report.kinds)
    cluster.provision("verify", cluster.file).ended(0)
    cluster.is_settled = True


def test_7_nothing_is_left(cluster: Cluster, k3s: str) -> None:
    assert k3s
    cluster.provision("destroy", cluster.file, "--yes").ended(0)
    cluster.down()
