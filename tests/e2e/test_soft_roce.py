# ruff: noqa: E501 - files as guests have them
"""Two virtual machines with Soft-RoCE: real verbs and a real kernel, no NIC. Only in `make story-rdma`.

What stays unproven here: a physical NIC, GPUDirect, and pods. Soft-RoCE (`rdma_rxe`) counts packets and no bytes, so
which share of the bytes a port carried is unknown, and said to be.
"""

from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from provision.rdma.measurements import counters, gids
from provision.rdma.measurements.counters import Counters, Route, judge
from provision.rdma.measurements.perftest import Bandwidth, parse_bandwidth
from provision.rdma.measurements.rping import Rping, parse_rping
from tests.e2e.site import Site, brought_up

pytestmark = [
    pytest.mark.rdma,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and virtual machines"),
]
LAB = Path(__file__).parents[2] / "inventories/lab.yaml"
FIRST, SECOND = "198.18.0.11", "198.18.0.12"
PACKAGES = (
    "rdma-core", "ibverbs-providers", "ibverbs-utils", "libibverbs1", "librdmacm1", "rdmacm-utils", "libibumad3",
    "perftest", "libnl-3-200", "libnl-route-3-200", "libpci3",
)  # fmt: skip
PREPARE = """set -e
cd /root && base64 -d >debs.tar <<'END'
@DEBS@
END
mkdir -p debs && tar -C debs -xf debs.tar && DEBIAN_FRONTEND=noninteractive dpkg -i debs/*.deb >/dev/null
# Read before the file of provision, whose option comes last and wins.
echo 'options ib_core netns_mode=0' >/etc/modprobe.d/exclusive.conf
cat >/etc/systemd/system/soft-roce.service <<'END'
[Unit]
After=network-online.target systemd-networkd.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -ec 'modprobe rdma_rxe; d=$(ls /sys/class/net | grep -v ^lo$ | head -n 1); rdma link add rxe0 type rxe netdev $d'
[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload
systemctl enable -q soft-roce.service
systemctl start soft-roce.service
"""
PLAYBOOK = """name: soft-roce
description: Soft-RoCE alone.
steps:
  - { role: rdma_host, on: nodes.rdma }
  - { verify: [rdma] }
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Site:
    declared = yaml.safe_load(LAB.read_text())
    declared["name"] = "e2e-rdma"
    for key in ("cards", "host_resources"):
        del declared["hypervisors"]["pve"][key]
    del declared["lab"]["hypervisor"]["cards"]
    declared["profiles"]["small"] |= {"host_resources": [], "swap": "off"}  # which YAML 1.1 takes for false
    declared["nodes"] = {
        f"vm-{number}": {"profile": "small", "vmid": 200 + number, "address": address}
        for number, address in ((1, FIRST), (2, SECOND))
    }
    return brought_up(Site(tmp_path_factory.mktemp("rdma"), declared, deadline=3600), request)


def debs(folder: Path) -> str:
    """Return the packages that the guests need, which have no way to an archive."""
    subprocess.run(["apt-get", "-q", "download", *PACKAGES], cwd=folder, check=True, capture_output=True)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(folder.glob("*.deb")):
            archive.add(path, path.name)
    return base64.encodebytes(packed.getvalue()).decode()


def device(site: Site, address: str) -> str:
    return site.on(address, "ls /sys/class/net | grep -v ^lo$ | head -n 1").strip()


def boot(site: Site, address: str) -> str:
    return site.on(address, "cat /proc/sys/kernel/random/boot_id").strip()


def boots(site: Site, address: str) -> int:
    return len(site.on(address, "journalctl --list-boots --quiet --no-pager").splitlines())


def pair(site: Site) -> Path:
    """Write the inventory of the two machines as such: on a hypervisor's VMs, rails are not supported."""
    known = site.folder / "pair_hosts"
    known.write_text(site.scanned(FIRST) + site.scanned(SECOND))
    nodes = {
        f"rdma-{number}": {
            "address": address,
            "rails": {"r0": {"device": device(site, address), "hca": "rxe0"}},
            "rail_addresses": {"r0": f"{address}/24"},
        }
        for number, address in ((1, FIRST), (2, SECOND))
    }
    declared = {
        "version": 1,
        "name": "soft-roce",
        "policy": {"allow": ["reboot-node"]},
        "access": {"user": "debian", "key": str(site.lab / "keys/guest"), "known_hosts": str(known)},
        "network": {"cidr": "198.18.0.0/24"},
        "nodes": nodes,
        "rdma": {"netns": "shared"},
    }
    (site.folder / "soft-roce-playbook.yaml").write_text(PLAYBOOK)
    return site.write(site.folder / "pair.yaml", declared)


def provision(site: Site, *words: object) -> str:
    """Run the command line in the lab's network, for an inventory that knows no lab."""
    playbook = str(site.folder / "soft-roce-playbook.yaml")
    settings = ["env", f"PROVISION_STATE={site.folder / 'pair-state'}"]
    program = [sys.executable, "-P", "-m", "provision.cli.main"]
    return site.inside([*settings, *program, *map(str, words), "--playbook", playbook])


def test_1_guests_have_soft_roce_whose_devices_a_namespace_has_alone(site: Site, tmp_path: Path) -> None:
    site.apply().ended(0)
    script = PREPARE.replace("@DEBS@", debs(tmp_path).strip())
    for address in (FIRST, SECOND):
        site.on(address, script)
        assert "netns exclusive" in site.on(address, "rdma system show")
        assert "state ACTIVE" in site.on(address, "rdma link show rxe0/1")


def test_2_the_mode_is_changed_by_one_boot_and_rails_are_proven(site: Site) -> None:
    before = {address: boot(site, address) for address in (FIRST, SECOND)}
    counted = {address: boots(site, address) for address in (FIRST, SECOND)}
    file = pair(site)
    provision(site, "apply", file, "--yes")
    after = {address: boot(site, address) for address in (FIRST, SECOND)}
    for address in (FIRST, SECOND):
        assert before[address] != after[address]
        assert boots(site, address) <= counted[address] + 1
        assert "netns shared" in site.on(address, "rdma system show")
        assert site.on(address, "cat /sys/module/ib_core/parameters/netns_mode").strip() == "Y"
    provision(site, "plan", file, "--detailed-exitcode")
    assert after == {address: boot(site, address) for address in (FIRST, SECOND)}


def test_3_connections_and_writes_go_between_the_guests(site: Site) -> None:
    entries = gids.parse_gids(site.on(FIRST, gids.SCRIPT))
    assert isinstance(entries, tuple)
    own = [entry for entry in entries if str(entry.address) == FIRST]
    assert [(entry.device, entry.version) for entry in own] == [("rxe0", "v2")]
    before = counters.parse_counters(site.on(FIRST, counters.SCRIPT))
    site.on(SECOND, f"(rping -s -a {SECOND} -P >/dev/null 2>&1 &) ; sleep 2")
    pings = parse_rping(site.on(FIRST, f"timeout 120 rping -c -a {SECOND} -C 10 -v 2>&1"))
    assert isinstance(pings, Rping)
    assert pings.iterations == 10
    index = own[0].index
    test = f"ib_write_bw -d rxe0 -x {index} -n 50 -s 4096 -F"
    site.on(SECOND, f"({test} >/dev/null 2>&1 &) ; sleep 5")
    report = parse_bandwidth(site.on(FIRST, f"timeout 300 {test} {SECOND} 2>&1"))
    assert isinstance(report, Bandwidth), report
    assert (report.device, report.link, report.gid_index, report.card) == ("rxe0", "Ethernet", index, "")
    after = counters.parse_counters(site.on(FIRST, counters.SCRIPT))
    assert isinstance(before, Counters)
    assert isinstance(after, Counters)
    assert after.packets["rxe0", 1] > before.packets["rxe0", 1]
    judgement = judge(before, after, ("rxe0", 1), report.sent, 0.01, device(site, FIRST))
    assert judgement.route is Route.UNKNOWN
    assert "packets" in judgement.reason
