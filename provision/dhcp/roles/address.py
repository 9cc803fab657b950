"""The address that was reserved is the address that was got: on the guest, and in the router's leases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.contracts.query import Unknown
from provision.contracts.resource import Resource
from provision.contracts.role import Context, Role
from provision.dhcp.contract import Router
from provision.dhcp.resources.lease_proof import AddressUsed, LeaseHeld, old_lease
from provision.dhcp.roles import dhcp_reservation
from provision.hosts import names as host_names
from provision.inventory import Inventory, Subject
from provision.proxmox import macs, names
from provision.proxmox.queries import VmConfig, vm_state


def declared(inventory: Inventory, subject: Subject) -> bool:
    """Whether the node is a VM whose address is reserved, or given to it by cloud-init."""
    if subject.kind != "node":
        return False
    backend = inventory.dhcp_backend
    if backend is not None and backend.reached == "nowhere":
        node = inventory.nodes[subject.name]
        return node.is_virtual and node.manage and bool(node.nics)
    return dhcp_reservation.declared(inventory, subject)


def questions(inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
    """Ask for the VM's MAC, and for the router's leases; the guest is asked by its resource."""
    node = inventory.nodes[subject.name]
    vm: dict[str, tuple[Any, ...]] = {
        names.api(str(node.hypervisor)): (VmConfig(names.vmid(inventory, node)),)
    }
    router = dhcp_reservation.router(inventory)
    if router is None:
        return {**vm, host_names.ssh(node.name): AddressUsed.QUERIES}
    return {**vm, router.system: router.queries()}


def resources(context: Context) -> tuple[Resource, ...]:
    """Return the proofs."""
    inventory = context.inventory
    node = inventory.nodes[context.subject.name]
    state = vm_state(context.seen(names.api(str(node.hypervisor))), names.vmid(inventory, node))
    mac = macs.of_node(inventory, node, 0, state).lower()
    source = inventory.source(("nodes", node.name, "address"))
    used = AddressUsed(host_names.ssh(node.name), node.name, mac, node.address, source=source)
    router = dhcp_reservation.router(inventory)
    if router is None:
        return (used,)
    held = LeaseHeld(router, node.name, mac, node.address, source=source)
    if _has_old_lease(context, router, mac, node.address):
        return (held,)  # nobody answers at the right address: the router says why
    return (used, held)


def _has_old_lease(context: Context, router: Router, mac: str, address: str) -> bool:
    snapshot = context.seen(router.system)
    answers = [context.answer(router.system, query) for query in router.queries()]
    if any(isinstance(answer, Unknown) for answer in answers):
        return False
    return old_lease(router, snapshot, mac, address) is not None


ROLE = Role(
    name="address",
    needs=("virtual_machine",),
    declared=declared,
    questions=questions,
    resources=resources,
)
