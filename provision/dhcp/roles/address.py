"""The address that was reserved is the address that was got: on the guest, and in the router's leases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.contracts.resource import Resource
from provision.contracts.role import Context, Role
from provision.dhcp.resources.lease_proof import AddressUsed, LeaseHeld
from provision.dhcp.roles import dhcp_reservation
from provision.hosts import names as host_names
from provision.inventory import Inventory, Subject
from provision.proxmox import macs, names
from provision.proxmox.queries import VmConfig, vm_state


def declared(inventory: Inventory, subject: Subject) -> bool:
    """Whether the node is a VM whose address comes by DHCP."""
    return subject.kind == "node" and dhcp_reservation.declared(inventory, subject)


def questions(inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
    """Ask for the VM's MAC; the guest and the router are asked by the resources."""
    node = inventory.nodes[subject.name]
    return {
        names.api(str(node.hypervisor)): (VmConfig(names.vmid(inventory, node)),),
        host_names.ssh(node.name): AddressUsed.QUERIES,
    }


def resources(context: Context) -> tuple[Resource, ...]:
    """Return the proofs."""
    inventory = context.inventory
    node = inventory.nodes[context.subject.name]
    state = vm_state(context.seen(names.api(str(node.hypervisor))), names.vmid(inventory, node))
    mac = macs.of_node(inventory, node, 0, state).lower()
    source = inventory.source(("nodes", node.name, "address"))
    found: list[Resource] = [
        AddressUsed(host_names.ssh(node.name), node.name, mac, node.address, source=source)
    ]
    router = dhcp_reservation.router(inventory)
    if router is not None:
        found.append(LeaseHeld(router, node.name, mac, node.address, source=source))
    return tuple(found)


ROLE = Role(
    name="address",
    needs=("virtual_machine",),
    declared=declared,
    questions=questions,
    resources=resources,
)
