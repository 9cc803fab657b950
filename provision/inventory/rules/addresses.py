"""Addresses: inside their networks, unique, against the DHCP range."""

from __future__ import annotations

from ipaddress import IPv4Network

from provision.inventory.models.inventory import Inventory
from provision.inventory.rules.findings import Findings
from provision.inventory.scalars import address_of
from provision.inventory.tree import KeyPath

_SMALLEST = 31


def check(inventory: Inventory, findings: Findings) -> None:
    """Find problems of addresses."""
    network = inventory.network
    taken: dict[str, KeyPath] = {}
    cidr = IPv4Network(network.cidr) if network is not None else None
    if network is not None and cidr is not None:
        if network.gateway is not None:
            taken[network.gateway] = ("network", "gateway")
            _inside(network.gateway, cidr, ("network", "gateway"), findings)
        if network.dhcp is not None and network.dhcp.address not in (None, network.gateway):
            taken[str(network.dhcp.address)] = ("network", "dhcp")
        _range(inventory, cidr, findings)
    places: list[tuple[KeyPath, str]] = [
        (("hypervisors", name, "address"), host.address) for name, host in inventory.hypervisors.items()
    ]
    places += [(("nodes", name, "address"), node.address) for name, node in inventory.nodes.items()]
    for place, address in places:
        findings.unique("the address", address, place, taken)
        if cidr is not None:
            _inside(address, cidr, place, findings)
    rails: dict[str, KeyPath] = {}
    for name, node in inventory.nodes.items():
        for rail, value in node.rail_addresses.items():
            path = ("nodes", name, "rail_addresses", rail)
            findings.unique("the rail address", value.partition("/")[0], path, rails)
            if rail not in node.rails:
                findings.reference(f"rail of {name}", rail, ("nodes", name, "rails"), path)


def _inside(address: str, cidr: IPv4Network, path: KeyPath, findings: Findings) -> None:
    parsed = address_of(address)
    if parsed not in cidr:
        findings.add("INVENTORY_NETWORK", f"{address} is outside the network {cidr}", path)
    elif cidr.prefixlen < _SMALLEST and parsed in (cidr.network_address, cidr.broadcast_address):
        findings.add("INVENTORY_NETWORK", f"{address} is not an address for a host in {cidr}", path)


def _range(inventory: Inventory, cidr: IPv4Network, findings: Findings) -> None:
    dhcp = inventory.dhcp
    if dhcp is None or dhcp.range is None:
        return
    low_text, _, high_text = dhcp.range.partition("-")
    low, high = address_of(low_text), address_of(high_text)
    if low not in cidr or high not in cidr:
        findings.add(
            "INVENTORY_NETWORK",
            f"the DHCP range {dhcp.range} is outside the network {cidr}",
            ("network", "dhcp", "range"),
        )
    if dhcp.in_range:
        return
    reserved: list[tuple[KeyPath, str]] = [
        (("nodes", name, "address"), node.address)
        for name, node in inventory.nodes.items()
        if node.is_virtual
    ]
    reserved += [
        (("hypervisors", name, "address"), item.address)
        for name, item in inventory.hypervisors.items()
        if item.reserve_address
    ]
    for path, address in reserved:
        if low <= address_of(address) <= high:
            remedy = "choose another address, or write `in_range: true` if the router accepts it"
            summary = f"the reserved address {address} is inside the DHCP range {dhcp.range}"
            findings.add("INVENTORY_NETWORK", summary, path, remedy=remedy)
