"""PCI mappings for the cards that VMs take: ids, subsystem and IOMMU group as the hypervisor shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from provision.contracts.resource import Resource
from provision.contracts.role import Context, Role
from provision.hosts import names as host_names
from provision.hosts.resources.pci import PciFunctions
from provision.inventory import Inventory, Subject
from provision.inventory.models.hypervisor import Hypervisor
from provision.proxmox import names
from provision.proxmox.queries import Mappings, PciMap, Permissions, UsbMappings
from provision.proxmox.resources.mapping import PciMapping, UsbMapping, description
from provision.values.diagnostics import Diagnostic, Source
from provision.values.errors import Permanent


def declared(inventory: Inventory, subject: Subject) -> bool:
    """Whether any VM takes a card or a USB device of the hypervisor."""
    if subject.kind != "hypervisor":
        return False
    usb = names.usb_mappings(inventory, inventory.hypervisors[subject.name])
    return bool(used(inventory, subject.name) or usb)


def questions(inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
    """Ask for the mappings, and for the host's PCI functions."""
    usb = names.usb_mappings(inventory, inventory.hypervisors[subject.name])
    return {
        names.api(subject.name): (Permissions(), Mappings(), *((UsbMappings(),) if usb else ())),
        host_names.ssh(subject.name): (PciFunctions(),),
    }


def resources(context: Context) -> tuple[Resource, ...]:
    """Return a mapping for each card, and for each pool of cards, that a VM takes.

    Raises:
        Permanent: a card is not there, or the host's PCI functions cannot be read.
    """
    inventory = context.inventory
    hypervisor = inventory.hypervisors[context.subject.name]
    desired: list[Resource] = []
    for alias in _taken(inventory, hypervisor.name):
        source = _source(inventory, hypervisor, alias)
        desired += (
            PciMapping(
                names.api(hypervisor.name),
                hypervisor.node_name,
                mapping,
                tuple(_entry(context, hypervisor, alias, path, source) for path in paths),
                inventory=inventory.name,
                source=source,
            )
            for mapping, paths in names.mappings(inventory, hypervisor, alias).items()
        )
    for name, device in names.usb_mappings(inventory, hypervisor).items():
        port = (("path", device.port),) if device.port is not None else ()
        desired.append(_usb(inventory, hypervisor, name, ((("id", device.id), *port),)))
    return tuple(desired)


def _usb(
    inventory: Inventory, hypervisor: Hypervisor, name: str, entries: tuple[tuple[tuple[str, str], ...], ...]
) -> UsbMapping:
    return UsbMapping(
        names.api(hypervisor.name),
        hypervisor.node_name,
        name,
        entries,
        absent=not entries,
        inventory=inventory.name,
        source=inventory.source(("hypervisors", hypervisor.name, "usb")),
    )


def retired(context: Context) -> tuple[Resource, ...]:
    """Return our mappings as absent."""
    inventory = context.inventory
    hypervisor = inventory.hypervisors[context.subject.name]
    usb = (_usb(inventory, hypervisor, name, ()) for name in names.usb_mappings(inventory, hypervisor))
    cards = (
        PciMapping(
            names.api(hypervisor.name),
            hypervisor.node_name,
            mapping,
            absent=True,
            source=_source(inventory, hypervisor, alias),
        )
        for alias in (*hypervisor.cards, *hypervisor.card_pools)
        for mapping in names.mappings(inventory, hypervisor, alias)
    )
    return (*cards, *usb)


def orphan_owners(inventory: Inventory) -> Mapping[Subject, Mapping[str, tuple[Any, ...]]]:
    """Ask every hypervisor for its mappings, whether or not a VM takes a card there."""
    owners: dict[Subject, Mapping[str, tuple[Any, ...]]] = {}
    for owner in names.orphan_owners(inventory):
        usb = (UsbMappings(),) if inventory.hypervisors[owner.name].usb else ()
        owners[owner] = {names.api(owner.name): (Mappings(), *usb)}
    return owners


def orphans(context: Context) -> tuple[Resource, ...]:
    """Return mappings of ours for cards that no node takes any more, as absent.

    Raises:
        Permanent: the mappings cannot be listed.
    """
    inventory = context.inventory
    hypervisor = inventory.hypervisors[context.subject.name]
    system = names.api(hypervisor.name)
    if system not in context.snapshots:
        return ()  # the engine tells who is silent
    taken = {
        mapping
        for node in names.nodes_of(inventory, hypervisor.name)  # what is not managed may use its card, too
        for alias in node.cards
        if hypervisor.cards_of(alias)
        for mapping in names.mappings(inventory, hypervisor, alias)
    }
    usb: Sequence[PciMap] = ()
    # Without USB devices in the inventory they are asked for only if they were asked for last time.
    if hypervisor.usb or UsbMappings() in context.seen(system):
        usb = context.require(system, UsbMappings(), f"cannot list the USB mappings of {hypervisor.name}")
    plugged = names.usb_mappings(inventory, hypervisor)
    unused = [entry.name for entry in usb if entry.name not in plugged and _is_ours(inventory, entry)]
    mappings = context.require(system, Mappings(), f"cannot list the PCI mappings of {hypervisor.name}")
    cards = (
        PciMapping(
            system,
            hypervisor.node_name,
            mapping.name,
            absent=True,
            source=inventory.source(("hypervisors", hypervisor.name, "cards")),
        )
        for mapping in mappings
        if mapping.name not in taken and _is_ours(inventory, mapping)
    )
    return (*cards, *(_usb(inventory, hypervisor, name, ()) for name in unused))


def _is_ours(inventory: Inventory, mapping: PciMap) -> bool:
    is_named = mapping.name.startswith(names.mapping_prefix(inventory))
    return is_named and mapping.description == description(inventory.name)


def used(inventory: Inventory, hypervisor: str) -> tuple[str, ...]:
    """Return the aliases of the cards that VMs of a hypervisor take, or may take of a pool, each once."""
    cards_of = inventory.hypervisors[hypervisor].cards_of
    return tuple(card for alias in _taken(inventory, hypervisor) for card in cards_of(alias))


def _taken(inventory: Inventory, hypervisor: str) -> tuple[str, ...]:
    """Return the aliases of the cards and pools that VMs of a hypervisor name, each once."""
    nodes = (node for node in names.nodes_of(inventory, hypervisor) if node.manage)
    aliases = dict.fromkeys(alias for node in nodes for alias in node.cards)
    return tuple(alias for alias in aliases if inventory.hypervisors[hypervisor].cards_of(alias))


def _source(inventory: Inventory, hypervisor: Hypervisor, alias: str) -> Source | None:
    section = "card_pools" if alias in hypervisor.card_pools else "cards"
    return inventory.source(("hypervisors", hypervisor.name, section, alias))


def _entry(
    context: Context, hypervisor: Hypervisor, card: str, path: str, source: Source | None
) -> tuple[tuple[str, str], ...]:
    what = f"cannot read the PCI cards of {hypervisor.name}"
    functions = context.require(host_names.ssh(hypervisor.name), PciFunctions(), what, source)
    first = next((each for each in functions if path in {each.slot, each.address}), None)
    if first is None:
        raise Permanent(
            Diagnostic(
                "CARD_MISSING",
                f"{hypervisor.name} has no PCI card at {path} ({card})",
                hypervisor.name,
                source=source,
                remedy="see which cards there are: `provision cards INVENTORY`",
            )
        )
    parts = {"path": path, "id": first.id}
    if first.subsystem:
        parts["subsystem-id"] = first.subsystem
    if first.group:
        parts["iommugroup"] = first.group
    return tuple(parts.items())


ROLE = Role(
    name="pci_mapping",
    needs=("hypervisor_host",),
    needs_new_boot=True,
    declared=declared,
    questions=questions,
    resources=resources,
    retired=retired,
    orphan_owners=orphan_owners,
    orphans=orphans,
)
