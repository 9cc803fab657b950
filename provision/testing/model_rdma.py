"""The RDMA ports of a host in memory: what its kernel shows of them, and what a boot makes of namespaces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface

from provision.inventory.models.node import Node
from provision.rdma.queries import ROCE_V2, Gid, Interface, Port, RdmaStatus

_PORT = re.compile(r"/sys/class/infiniband/([^/]+)/ports/([0-9]+)/(state|link_layer|rate)")
_MTU = re.compile(r"/sys/class/net/([^/]+)/mtu")
_MODE = "/sys/module/ib_core/parameters/netns_mode"


def rails_of(node: Node) -> RdmaStatus:
    """Return the ports that a node must have for its declared rails; nothing for a node without rails."""
    if not node.rails:
        return RdmaStatus()
    ports, interfaces = [], []
    for index, (name, rail) in enumerate(sorted(node.rails.items())):
        pci, device = f"0000:{0xA0 + index:02x}:00.0", rail.device or f"rdma{index}"
        text = node.rail_addresses.get(name)
        gids = []
        if text is not None:
            address = IPv4Interface(text).ip
            gids = [Gid(2, "IB/RoCE v1", device, address), Gid(3, ROCE_V2, device, address)]
        hca = rail.hca or f"mlx5_{index}"
        ports.append(Port(hca, rail.port, pci, "ACTIVE", "Ethernet", 400.0, True, tuple(gids)))
        addresses = () if text is None else (IPv4Interface(text).with_prefixlen,)
        interfaces.append(Interface(device, pci, rail.port - 1, rail.mtu or 1500, "up", addresses))
    minimum = node.ofed.minimum if node.ofed is not None else None
    return RdmaStatus("shared", ofed=minimum or "", ports=tuple(ports), interfaces=tuple(interfaces))


def booted(rdma: RdmaStatus, options: Sequence[str], line: str) -> RdmaStatus:
    """Return the ports after a boot: the last option of the core wins.

    Args:
        rdma: the ports before it.
        options: lines of modprobe.d, in the order of their files.
        line: the kernel line.
    """
    if not rdma.ports:
        return rdma
    given = re.findall(r"(?:^|\s)ib_core\.netns_mode=([01])", line) if rdma.built_in else []
    if not rdma.built_in:
        for option in options:
            if option.split()[:2] == ["options", "ib_core"]:
                given += re.findall(r"\snetns_mode=([01])", option)
    return replace(rdma, netns="exclusive" if given and given[-1] == "0" else "shared")


def kernel_file(rdma: RdmaStatus, path: str) -> str | None:
    """Return what a file of the kernel's says of the ports; None for others."""
    if path == _MODE:
        return {"shared": "Y", "exclusive": "N"}.get(rdma.netns)
    match = _PORT.fullmatch(path)
    if match is not None:
        for port in rdma.ports:
            if (port.device, str(port.number)) == (match[1], match[2]):
                state = "4: ACTIVE" if port.state == "ACTIVE" else f"1: {port.state}"
                return {
                    "state": state,
                    "link_layer": port.link_layer,
                    "rate": f"{port.rate or 0:g} Gb/sec (4X)",
                }[match[3]]
    match = _MTU.fullmatch(path)
    if match is not None:
        return next((str(one.mtu) for one in rdma.interfaces if one.name == match[1]), None)
    return None


def gid_table(rdma: RdmaStatus, device: str, number: str) -> str:
    """Return the entries of a port as its files print them: index, GID, type."""
    entries = [
        gid
        for port in rdma.ports
        if (port.device, str(port.number)) == (device, number)
        for gid in port.gids
        if isinstance(gid.address, IPv4Address)
    ]
    rows = (f"{gid.index} {_mapped(gid.address.packed.hex())} {gid.kind}\n" for gid in entries)
    return "".join(rows)


def _mapped(digits: str) -> str:
    """Return the GID that maps an IPv4 address of eight hexadecimal digits."""
    return f"0000:0000:0000:0000:0000:ffff:{digits[:4]}:{digits[4:]}"


def address_rows(rdma: RdmaStatus) -> str:
    """Return what `ip -4 -o addr show` prints."""
    rows = ((one.name, address) for one in rdma.interfaces for address in one.addresses)
    return "".join(
        f"{number}: {name}    inet {address} scope global {name}\\       valid_lft forever\n"
        for number, (name, address) in enumerate(rows, 2)
    )
