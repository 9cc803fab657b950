"""Rails of nodes: address, port, entry of the address, MTU, and how namespaces share the devices."""

from __future__ import annotations

import json
import re
from ipaddress import IPv4Interface

import pytest
from testinfra.host import Host

from provision.contracts.check import NotDeclared, Site
from provision.inventory.models.node import Node, Rail
from provision.k3s.cni_folders import PROGRAMS
from provision.kube.names import is_member
from provision.rdma.cni_paths import MISSING

GIDS = (
    "for g in /sys/class/infiniband/{hca}/ports/{port}/gids/*; do i=${{g##*/}};"
    ' echo "$i $(cat "$g" 2>/dev/null) $(cat "${{g%/gids/*}}/gid_attrs/types/$i" 2>/dev/null)"; done'
)
"""Index, GID and type of every entry, as the kernel prints them."""
MODE = "cat /sys/module/ib_core/parameters/netns_mode"
OPTIONS = "modprobe -c | grep '^options ib_core '"


@pytest.fixture
def declared(site: Site, node: str) -> Node:
    """What the inventory says of the node; nodes without rails have no claims."""
    found = site.inventory.nodes[node]
    if not found.rails:
        raise NotDeclared("no rails")
    return found


@pytest.fixture
def host(site: Site, node: str, declared: Node) -> Host:
    """The node."""
    del declared
    return site.host(f"{node}/ssh")


def _ports(declared: Node) -> list[tuple[str, Rail, str]]:
    """Return name, rail and RDMA device of the rails that declare one."""
    ports = [(name, rail, rail.hca) for name, rail in declared.rails.items() if rail.hca is not None]
    if not ports:
        raise NotDeclared("no rail names its RDMA device")
    return ports


def _port_file(host: Host, hca: str, port: int, name: str) -> str:
    path = f"/sys/class/infiniband/{hca}/ports/{port}/{name}"
    result = host.run(f"cat {path}")
    if result.rc:
        pytest.fail(f"{hca} port {port}: cannot read {name}: {result.stderr.strip()[:120]}")
    return str(result.stdout).strip()


def test_rail_address(host: Host, declared: Node) -> None:
    """Every rail's address is on the node, on the declared interface."""
    if not declared.rail_addresses:
        raise NotDeclared("no rail has an address")
    rows = re.findall(r"(?m)^\d+: (\S+)\s+inet (\S+)", host.check_output("ip -4 -o addr show"))
    for rail, address in declared.rail_addresses.items():
        wanted, device = IPv4Interface(address).with_prefixlen, declared.rails[rail].device
        holders = [name for name, text in rows if text == wanted]
        assert holders, f"rail {rail}: no interface has {wanted}"
        assert device in (None, *holders), f"rail {rail}: {holders[0]} has {wanted}, not {device}"


def test_rail_port(site: Site, host: Host, declared: Node) -> None:
    """Every rail's RDMA port is active, and Ethernet where pods get macvlan interfaces."""
    rdma = site.inventory.rdma
    for name, rail, hca in _ports(declared):
        state = _port_file(host, hca, rail.port, "state")
        assert state.endswith(": ACTIVE"), f"rail {name}: {hca} port {rail.port} is {state}"
        if rdma is not None and rdma.method == "macvlan":
            layer = _port_file(host, hca, rail.port, "link_layer")
            assert layer == "Ethernet", f"rail {name}: {hca} port {rail.port} is {layer}"


def test_rail_gid(host: Host, declared: Node) -> None:
    """Every rail's port has a RoCE v2 entry of the rail's address."""
    if not declared.rail_addresses:
        raise NotDeclared("no rail has an address")
    for name, rail, hca in _ports(declared):
        if name not in declared.rail_addresses:
            continue
        packed = IPv4Interface(declared.rail_addresses[name]).ip.packed.hex()
        wanted = f"0000:0000:0000:0000:0000:ffff:{packed[:4]}:{packed[4:]}"
        rows = host.check_output(GIDS.format(hca=hca, port=rail.port)).splitlines()
        kinds = [row.split(" ", 2)[2] for row in rows if wanted in row.split(" ")[1:2]]
        assert "RoCE v2" in kinds, f"rail {name}: {hca} port {rail.port} has no RoCE v2 entry {wanted}"


def test_rail_mtu(host: Host, declared: Node) -> None:
    """Every rail's interface has the declared MTU."""
    rails = {rail.device: rail.mtu for rail in declared.rails.values() if rail.device and rail.mtu}
    if not rails:
        raise NotDeclared("no rail declares an MTU")
    for device, mtu in rails.items():
        result = host.run(f"cat /sys/class/net/{device}/mtu")
        assert result.rc == 0, f"there is no interface {device}"
        assert result.stdout.strip() == str(mtu), f"{device} has MTU {result.stdout.strip()}, not {mtu}"


def test_cni_programs(site: Site, host: Host, declared: Node) -> None:
    """The CNI programs that networks of pods need, and k3s does not bring, are where containerd looks."""
    rdma = site.inventory.rdma
    if rdma is None or not is_member(site.inventory, declared):
        raise NotDeclared("no networks of pods")
    if not any(network.rail in declared.rails for network in rdma.networks.values()):
        raise NotDeclared("no network of its rails")
    for name in MISSING[rdma.method]:
        path = f"{PROGRAMS}/{name}"
        result = host.run(f"CNI_COMMAND=VERSION {path} </dev/null")
        assert result.rc == 0, f"{path} does not run: {(result.stderr or result.stdout).strip()[:120]}"
        versions = json.loads(result.stdout)["supportedVersions"]
        # Networks of the operator are written in this version.
        assert "0.3.1" in versions, f"{path} does not know CNI 0.3.1: {', '.join(versions)}"


def _mode(site: Site) -> str:
    rdma = site.inventory.rdma
    if rdma is None or rdma.netns is None:
        raise NotDeclared("the mode of namespaces is unmanaged")
    return rdma.netns


def test_rdma_namespaces(site: Site, host: Host, declared: Node) -> None:
    """Network namespaces share RDMA devices, or have them alone, as declared."""
    del declared
    mode = _mode(site)
    result = host.run(MODE)
    if result.rc:
        pytest.fail(f"the RDMA core of the kernel is not loaded: {result.stderr.strip()[:120]}")
    present = {"Y": "shared", "N": "exclusive"}.get(result.stdout.strip(), "unknown")
    assert present == mode, f"the mode is {present}, not {mode}"


def test_rdma_namespaces_at_boot(site: Site, host: Host, declared: Node) -> None:
    """The next boot has that mode, too."""
    del declared
    option = f"netns_mode={1 if _mode(site) == 'shared' else 0}"
    line = host.check_output("cat /proc/cmdline")
    options = host.run(OPTIONS).stdout
    assert f"ib_core.{option}" in line.split() or option in options.split(), f"nothing sets {option} at boot"
