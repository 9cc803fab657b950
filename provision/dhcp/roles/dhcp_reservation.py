"""Addresses reserved on the router by MAC, before a VM first boots (or after it, where routers want that)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from provision.contracts.resource import Resource
from provision.contracts.role import Context, Role
from provision.dhcp.backends.manual import ManualReservation, word_path
from provision.dhcp.contract import Reservation, Router, fold_mac, router_table
from provision.dhcp.resources.reservation import RouterReservation
from provision.hosts import names as host_names
from provision.hosts.resources.file import File
from provision.inventory import Inventory, Subject
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node
from provision.proxmox import macs, names
from provision.proxmox.queries import VmConfig, vm_state
from provision.values.diagnostics import Source
from provision.values.errors import Permanent
from provision.values.references import load_object


def declared(inventory: Inventory, subject: Subject) -> bool:
    """Whether the subject's address is reserved by us."""
    backend = inventory.dhcp_backend
    if backend is None or backend.reached == "nowhere":
        return False
    if subject.kind == "hypervisor":
        return inventory.hypervisors[subject.name].reserve_address and router(inventory) is not None
    node = inventory.nodes.get(subject.name)
    return node is not None and node.is_virtual and node.manage and bool(node.nics)


def questions(inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
    """Ask for the VM's MAC, or for the hypervisor's bridge."""
    keeper = router(inventory)
    asked = {keeper.system: keeper.queries()} if keeper is not None else {}
    if subject.kind == "hypervisor":
        return {host_names.ssh(subject.name): (macs.of_bridge(inventory.hypervisors[subject.name]),), **asked}
    node = inventory.nodes[subject.name]
    host = _told_with(inventory, node)
    bridge = {host_names.ssh(host.name): (macs.of_bridge(host),)} if host is not None else {}
    return {names.api(str(node.hypervisor)): (VmConfig(names.vmid(inventory, node)),), **asked, **bridge}


def resources(context: Context) -> tuple[Resource, ...]:
    """Return the one reservation of the subject."""
    inventory, name = context.inventory, context.subject.name
    keeper = router(inventory)
    if keeper is None:
        return _by_hand(context)
    if context.subject.kind == "hypervisor":
        reservations = _own(context, inventory.hypervisors[name])
    else:
        reservations = (wanted_of(context, inventory.nodes[name]),)
    source = _source(inventory, context.subject)
    return tuple(RouterReservation(keeper, each, source=source) for each in reservations)


def retired(context: Context) -> tuple[Resource, ...]:
    """Return our reservation as absent; what a person typed stays, the note of it goes."""
    inventory = context.inventory
    keeper = router(inventory)
    node = inventory.nodes.get(context.subject.name)
    if keeper is None:
        if node is None:
            return ()
        path = word_path(inventory.name, node.managed_hostname or node.name)
        return (File(host_names.ssh(str(node.hypervisor)), path, absent=True),)
    if node is not None:
        reservation = Reservation("", node.address, node.managed_hostname or node.name)
    else:
        hypervisor = inventory.hypervisors[context.subject.name]
        reservation = Reservation("", hypervisor.address, hypervisor.name)
    return (RouterReservation(keeper, reservation, absent=True, source=_source(inventory, context.subject)),)


def orphan_owners(inventory: Inventory) -> Mapping[Subject, Mapping[str, tuple[Any, ...]]]:
    """Ask the router for its reservations, whether or not one is declared."""
    keeper = router(inventory)
    if keeper is None:
        return {}
    return {Subject("cluster", host_names.ROUTER): {keeper.system: keeper.queries()}}


def orphans(context: Context) -> tuple[Resource, ...]:
    """Return our reservations of hosts for which the inventory wants none any more, as absent.

    Raises:
        Permanent: the reservations cannot be listed.
    """
    inventory = context.inventory
    keeper = router(inventory)
    if keeper is None or keeper.system not in context.snapshots:
        return ()  # the engine tells who is silent
    known = {
        each.managed_hostname or each.name
        for each in inventory.nodes.values()
        if not each.manage or declared(inventory, Subject("node", each.name))
    }
    known |= {each.name for each in inventory.hypervisors.values() if each.reserve_address}
    for query in keeper.queries():
        what = "cannot list the reservations of the router"
        context.require(keeper.system, query, what, may_be_absent=True)
    return tuple(
        RouterReservation(keeper, reservation, absent=True)
        for reservation in router_table(keeper, context.seen(keeper.system)).reservations
        if reservation.name not in known and reservation.place == keeper.place(reservation.name)
    )


def router(inventory: Inventory) -> Router | None:
    """Return the router that we write reservations to; None where a person does, or nobody can yet."""
    return inventory.derived(_declared_router)


def _declared_router(inventory: Inventory) -> Router | None:
    dhcp = inventory.dhcp
    backend = inventory.dhcp_backend
    if dhcp is None or backend is None or not backend.router:
        return None
    declared_router: Router = load_object(backend.router)(
        host_names.ROUTER, f"provision-{inventory.name}-", dhcp
    )
    return declared_router


def wanted_of(context: Context, node: Node) -> Reservation:
    """Return a VM's reservation: declared address, MAC of its first network device."""
    inventory = context.inventory
    snapshot = context.seen(names.api(str(node.hypervisor)))
    state = vm_state(snapshot, names.vmid(inventory, node))
    ours = state is not None and state.marker_of(inventory.name, node.name) is not None
    mac = macs.of_node(inventory, node, 0, state if ours else None)
    return Reservation(fold_mac(mac), node.address, node.managed_hostname or node.name)


def _by_hand(context: Context) -> tuple[Resource, ...]:
    inventory = context.inventory
    node = inventory.nodes[context.subject.name]
    boots_first = inventory.dhcp is not None and inventory.dhcp.order == "boot_first"
    state = vm_state(context.seen(names.api(str(node.hypervisor))), names.vmid(inventory, node))
    off = state is not None and not state.running
    if off or (state is None and boots_first):
        return ()  # nobody can answer at the address, and a person who did it once is not asked again
    host = _told_with(inventory, node)
    beside = () if host is None else _own(context, host)
    source = _source(inventory, context.subject)
    reservation = wanted_of(context, node)
    return (
        ManualReservation(
            host_names.ssh(str(node.hypervisor)),
            reservation,
            source=source,
            beside=beside,
            guest=host_names.ssh(node.name),
            inventory=inventory.name,
            command=f"provision reserved {shlex.quote(inventory.file or inventory.name)} {node.name}",
        ),
    )


def _told_with(inventory: Inventory, node: Node) -> Hypervisor | None:
    """Return the hypervisor whose own row is shown to a person with a node's: once, with its first VM's.

    No lease proves a static address, so the row is no step of its own, which would wait for ever.
    """
    if router(inventory) is not None:
        return None
    host = inventory.hypervisors[str(node.hypervisor)]
    guests = (guest for guest in names.nodes_of(inventory, host.name) if guest.manage)
    return host if host.reserve_address and next(guests).name == node.name else None


def _own(context: Context, hypervisor: Hypervisor) -> tuple[Reservation, ...]:
    """Return the hypervisor's own reservation, once its MAC is known.

    Raises:
        Permanent: the host does not have the bridge whose MAC is to be reserved.
    """
    mac, system = hypervisor.mac or "", host_names.ssh(hypervisor.name)
    if not mac and system in context.snapshots:
        what = f"cannot read the MAC address of {hypervisor.bridge} on {hypervisor.name}"
        source = context.inventory.source(("hypervisors", hypervisor.name, "reserve_address"))
        text = context.require(system, macs.of_bridge(hypervisor), what, source, may_be_absent=True)
        if text is None:
            raise Permanent(macs.unknown_of_bridge(context.inventory, hypervisor))
        mac = text.decode("ascii", "replace").strip()
    return (Reservation(fold_mac(mac), hypervisor.address, hypervisor.name),) if mac else ()


def _source(inventory: Inventory, subject: Subject) -> Source | None:
    group = "hypervisors" if subject.kind == "hypervisor" else "nodes"
    return inventory.source((group, subject.name, "address"))


ROLE = Role(
    name="dhcp_reservation",
    # Nothing is reserved for a VM whose hypervisor does not answer: its image is a step of that host.
    needs=("image",),
    declared=declared,
    questions=questions,
    resources=resources,
    retired=retired,
    orphan_owners=orphan_owners,
    orphans=orphans,
)
