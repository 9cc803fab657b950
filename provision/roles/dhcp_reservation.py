"""Addresses reserved on the router by MAC, before a VM first boots (or after it, where routers want that)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.facts.host import HostFacts
from provision.inventory import Inventory, Subject
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node
from provision.inventory.models.site import Dhcp
from provision.resources.contracts import CannotTell, Resource
from provision.resources.dhcp.contract import Reservation, fold_mac
from provision.resources.dhcp.dnsmasq import HOSTS_FOLDER, Dnsmasq
from provision.resources.dhcp.manual import ManualReservation
from provision.resources.host.query_file import FileText
from provision.resources.proxmox.queries import VmConfig, vm_state
from provision.roles import macs, names
from provision.roles.contracts import Context
from provision.values.diagnostics import Source

NEEDS: tuple[str, ...] = ()
NEW_BOOT = False
SERVED = ("dnsmasq", "manual")
"""Back ends that exist."""


def declared(inventory: Inventory, subject: Subject) -> bool:
    """Whether the subject's address is reserved by us."""
    if _dhcp(inventory) is None:
        return False
    if subject.kind == "hypervisor":
        hypervisor = inventory.hypervisors[subject.name]
        dhcp = _dhcp(inventory)
        return hypervisor.reserve_address and dhcp is not None and dhcp.backend != "manual"
    node = inventory.nodes.get(subject.name)
    return node is not None and node.is_virtual and node.manage and bool(node.nics)


def questions(inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
    """Ask for the VM's MAC, or for the hypervisor's bridge."""
    dhcp = _dhcp(inventory)
    router: dict[str, tuple[Any, ...]] = {}
    if dhcp is not None and dhcp.backend == "dnsmasq":
        router = {names.ROUTER: backend(inventory, dhcp).questions()}
    if subject.kind == "hypervisor":
        return {names.ssh(subject.name): (_bridge(inventory.hypervisors[subject.name]),), **router}
    node = inventory.nodes[subject.name]
    host = _told_with(inventory, node, dhcp)
    bridge = {names.ssh(host.name): (_bridge(host),)} if host is not None else {}
    return {names.api(str(node.hypervisor)): (VmConfig(names.vmid(inventory, node)),), **router, **bridge}


def resources(context: Context) -> tuple[Resource, ...]:
    """Return the one reservation of the subject."""
    inventory = context.inventory
    dhcp = _dhcp(inventory)
    if dhcp is None:
        return ()
    if context.subject.kind == "hypervisor":
        return _of_hypervisor(context, dhcp)
    return _of_node(context, dhcp)


def retired(context: Context) -> tuple[Resource, ...]:
    """Return our reservation as absent; what a person typed stays."""
    inventory = context.inventory
    dhcp = _dhcp(inventory)
    if not context.destroying or dhcp is None or dhcp.backend != "dnsmasq":
        return ()
    node = inventory.nodes.get(context.subject.name)
    if node is not None:
        wanted = Reservation("", node.address, node.managed_hostname or node.name)
    else:
        hypervisor = inventory.hypervisors[context.subject.name]
        wanted = Reservation("", hypervisor.address, hypervisor.name)
    return (backend(inventory, dhcp).remove(wanted, _source(inventory, context.subject)),)


def keepers(inventory: Inventory) -> Mapping[Subject, Mapping[str, tuple[Any, ...]]]:
    """Ask the router for its reservations, whether or not one is declared."""
    dhcp = _dhcp(inventory)
    if dhcp is None or dhcp.backend != "dnsmasq":
        return {}
    return {Subject("cluster", names.ROUTER): {names.ROUTER: backend(inventory, dhcp).questions()}}


def orphans(context: Context) -> tuple[Resource, ...]:
    """Return our reservations of hosts for which the inventory wants none any more, as absent."""
    inventory = context.inventory
    dhcp = _dhcp(inventory)
    if dhcp is None:
        return ()
    router = backend(inventory, dhcp)
    known = {
        each.managed_hostname or each.name
        for each in inventory.nodes.values()
        if not each.manage or declared(inventory, Subject("node", each.name))
    }
    known |= {each.name for each in inventory.hypervisors.values() if each.reserve_address}
    found = router.reservations(context.seen(names.ROUTER))
    ours = () if isinstance(found, CannotTell) else found
    return tuple(
        router.remove(each, None)
        for each in ours
        if each.name not in known and each.place == router.file(each.name)
    )


def backend(inventory: Inventory, dhcp: Dhcp) -> Dnsmasq:
    """Return the router's back end."""
    return Dnsmasq(names.ROUTER, f"provision-{inventory.name}-", (dhcp.file or HOSTS_FOLDER).rstrip("/"))


def wanted_of(context: Context, node: Node) -> Reservation:
    """Return a VM's reservation: declared address, MAC of its first network device."""
    inventory = context.inventory
    seen = context.seen(names.api(str(node.hypervisor)))
    state = vm_state(seen, names.vmid(inventory, node))
    ours = state is not None and state.marker_of(inventory.name, node.name) is not None
    mac = macs.of_node(inventory, node, 0, state if ours else None)
    return Reservation(fold_mac(mac), node.address, node.managed_hostname or node.name)


def _of_node(context: Context, dhcp: Dhcp) -> tuple[Resource, ...]:
    inventory = context.inventory
    node = inventory.nodes[context.subject.name]
    source = _source(inventory, context.subject)
    wanted = wanted_of(context, node)
    if dhcp.backend == "dnsmasq":
        return (backend(inventory, dhcp).ensure(wanted, source),)
    state = vm_state(context.seen(names.api(str(node.hypervisor))), names.vmid(inventory, node))
    off = state is not None and not state.running
    if off or (state is None and dhcp.order == "boot_first"):
        return ()  # nobody can answer at the address, and a person who did it once is not asked again
    host = _told_with(inventory, node, dhcp)
    beside = () if host is None else _own(context, host)
    return (ManualReservation(names.ssh(str(node.hypervisor)), wanted, source=source, beside=beside),)


def _of_hypervisor(context: Context, dhcp: Dhcp) -> tuple[Resource, ...]:
    router = backend(context.inventory, dhcp)
    source = _source(context.inventory, context.subject)
    return tuple(
        router.ensure(each, source)
        for each in _own(context, context.inventory.hypervisors[context.subject.name])
    )


def _told_with(inventory: Inventory, node: Node, dhcp: Dhcp | None) -> Hypervisor | None:
    """Return the hypervisor whose own row a person is told with a node's: once, with its first VM's.

    No lease proves a static address, so the row is no step of its own, which would wait for ever.
    """
    if dhcp is None or dhcp.backend != "manual":
        return None
    host = inventory.hypervisors[str(node.hypervisor)]
    guests = (each for each in inventory.nodes.values() if each.hypervisor == host.name and each.manage)
    return host if host.reserve_address and next(guests).name == node.name else None


def _own(context: Context, hypervisor: Hypervisor) -> tuple[Reservation, ...]:
    """Return the hypervisor's own reservation, once its MAC is known."""
    mac = hypervisor.mac or ""
    if not mac:
        text = HostFacts(context.seen(names.ssh(hypervisor.name))).text(_bridge(hypervisor))
        mac = "" if isinstance(text, CannotTell) else text.strip()
    return (Reservation(fold_mac(mac), hypervisor.address, hypervisor.name),) if mac else ()


def _bridge(hypervisor: Hypervisor) -> FileText:
    return FileText(f"/sys/class/net/{hypervisor.bridge}/address")


def _dhcp(inventory: Inventory) -> Dhcp | None:
    dhcp = inventory.network.dhcp if inventory.network is not None else None
    return dhcp if dhcp is not None and dhcp.backend in SERVED else None


def _source(inventory: Inventory, subject: Subject) -> Source | None:
    group = "hypervisors" if subject.kind == "hypervisor" else "nodes"
    return inventory.source((group, subject.name, "address"))
