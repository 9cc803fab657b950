"""MAC addresses: declared, read back from an existing VM, or made once from the names.

Proxmox's own addresses begin with BC:24:11, and so do ours: the rest is a digest of inventory, node and
position.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container

from provision.hosts.queries.file import FileText
from provision.inventory import Inventory
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node
from provision.proxmox import formats
from provision.proxmox.queries import VmState
from provision.values.diagnostics import Diagnostic

PREFIX = "BC:24:11"


def made(inventory: str, node: str, nic: int, taken: Container[str] = frozenset()) -> str:
    """Return the MAC of a new network device.

    Args:
        inventory: name of the inventory.
        node: name of the node.
        nic: position of the device, the first is 0.
        taken: addresses that are in use, upper-case; a counter leads past them.
    """
    counter = 0
    while True:
        text = f"{inventory}\0{node}\0{nic}" + (f"\0{counter}" if counter else "")
        digest = hashlib.sha256(text.encode()).digest()
        mac = ":".join((PREFIX, *(f"{byte:02X}" for byte in digest[:3])))
        if mac not in taken:
            return mac
        counter += 1


def of_vm(state: VmState | None, nic: int) -> str:
    """Return the MAC that an existing VM's device has, upper-case; empty if there is none.

    A device whose removal somebody left pending still has its address, and keeps it when it is added again.
    """
    if state is None:
        return ""
    text = state.next_value(f"net{nic}") or state.config.get(f"net{nic}", "")
    return formats.normal(text, formats.NET).get("macaddr", "")


def all_made(inventory: Inventory) -> dict[tuple[str, int], str]:
    """Return the addresses of all devices before anything exists: declared or made, each once."""
    return inventory.derived(_all_made)


def _all_made(inventory: Inventory) -> dict[tuple[str, int], str]:
    addresses: dict[tuple[str, int], str] = {}
    taken = {nic.mac.upper() for node in inventory.nodes.values() for nic in node.nics if nic.mac is not None}
    for node in inventory.nodes.values():
        for index, nic in enumerate(node.nics):
            mac = nic.mac.upper() if nic.mac is not None else made(inventory.name, node.name, index, taken)
            taken.add(mac)
            addresses[node.name, index] = mac
    return addresses


def of_node(inventory: Inventory, node: Node, nic: int, state: VmState | None) -> str:
    """Return the MAC that a device has or will have: declared, else what the VM has, else made."""
    declared = node.nics[nic].mac
    if declared is not None:
        return declared.upper()
    return of_vm(state, nic) or all_made(inventory)[node.name, nic]


def of_bridge(hypervisor: Hypervisor) -> FileText:
    """Return the query about the MAC of a hypervisor's bridge; no file where there is no such bridge."""
    return FileText(f"/sys/class/net/{hypervisor.bridge}/address")


def unknown_of_bridge(inventory: Inventory, hypervisor: Hypervisor) -> Diagnostic:
    """Return why a hypervisor's own address cannot be reserved where it does not have its bridge."""
    return Diagnostic(
        "MAC_UNKNOWN",
        f"{hypervisor.name} has no {hypervisor.bridge}, whose MAC address is to be reserved",
        hypervisor.name,
        source=inventory.source(("hypervisors", hypervisor.name, "reserve_address")),
        untouched="Nothing was changed.",
        remedy=f"declare it: `hypervisors.{hypervisor.name}.mac`, or name the right bridge",
    )
