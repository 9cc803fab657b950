"""PCI cards of a host as they are: for the person who writes the inventory."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass

from provision.hosts.queries.shell import Shell
from provision.hosts.resources.pci import PciFunction
from provision.inventory import Inventory

MODELS = Shell("lspci -D -mm")
"""Names of all PCI functions, where pciutils is installed (lspci(8), machine-readable output)."""
UUIDS = Shell("nvidia-smi --query-gpu=pci.bus_id,uuid,name --format=csv,noheader")
"""NVIDIA's own names, where its driver has the card."""
NVIDIA_DOMAIN = 8
"""Digits of a PCI domain in the words of nvidia-smi."""


@dataclass(frozen=True, slots=True)
class HostCard:
    """One card of one host.

    Args:
        host: hypervisor or node.
        slot: PCI address with domain, without function.
        ids: vendor and device of its functions, the first one first.
        model: its name, empty where nothing on the host knows it.
        groups: IOMMU groups of its functions; empty without an IOMMU.
        shares: further cards in these groups, bridges left out.
        drivers: drivers of its functions in their order, `-` for none.
        console: whether the firmware's console is on it.
        aliases: names that the inventory gives it.
        uuid: of a GPU that NVIDIA's driver has.
    """

    host: str
    slot: str
    ids: tuple[str, ...]
    model: str = ""
    groups: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    console: bool = False
    aliases: tuple[str, ...] = ()
    uuid: str = ""


def cards_of(
    host: str,
    functions: tuple[PciFunction, ...],
    names: Mapping[str, tuple[str, ...]],
    models: Mapping[str, str],
    uuids: Mapping[str, tuple[str, str]],
) -> tuple[HostCard, ...]:
    """Return the cards of a host, bridges left out.

    Args:
        host: its name.
        functions: all of its PCI functions.
        names: aliases by slot, and by `vendor:device` where no address is known.
        models: names by full PCI address.
        uuids: UUID and name of GPUs by slot.
    """
    by_slot: dict[str, list[PciFunction]] = {}
    for function in functions:
        if not function.is_bridge:
            by_slot.setdefault(function.slot, []).append(function)
    cards = []
    for slot, own in by_slot.items():
        first = own[0]
        uuid, model = uuids.get(slot, ("", ""))
        groups = tuple(dict.fromkeys(function.group for function in own if function.group))
        cards.append(
            HostCard(
                host=host,
                slot=slot,
                ids=tuple(dict.fromkeys(function.id for function in own)),
                model=model or models.get(first.address, ""),
                groups=groups,
                shares=tuple(
                    other for other, theirs in by_slot.items() if other != slot and _meet(theirs, groups)
                ),
                drivers=tuple(function.driver or "-" for function in own),
                console=any(function.boot_vga for function in own),
                aliases=names.get(slot) or names.get(first.id, ()),
                uuid=uuid,
            )
        )
    return tuple(cards)


def aliases(inventory: Inventory, host: str) -> dict[str, tuple[str, ...]]:
    """Return the inventory's names for a host's cards, by slot; in a VM by id, where only one fits."""
    names: dict[str, list[str]] = {}
    hypervisor = inventory.hypervisors.get(host)
    if hypervisor is not None:
        for name, card in hypervisor.cards.items():
            names.setdefault(card.address, []).append(name)
        return {key: tuple(each) for key, each in names.items()}
    node = inventory.nodes[host]
    owner = inventory.hypervisor_of(node)
    for name in node.cards:
        cards = [owner.cards[card] for card in owner.cards_of(name)] if owner is not None else []
        identity = cards[0].id if cards else None  # the cards of a pool have one
        if identity is not None:
            names.setdefault(identity.lower(), []).append(name)
    return {key: tuple(each) for key, each in names.items() if len(each) == 1}


def models_of(text: str) -> dict[str, str]:
    """Return names by PCI address from `lspci -D -mm`: slot, class, vendor and device, each quoted."""
    models = {}
    for row in csv.reader(text.splitlines(), delimiter=" ", skipinitialspace=True):
        if len(row) > 3:  # noqa: PLR2004 - the format's fields
            models[row[0]] = f"{row[2]} {row[3]}"
    return models


def uuids_of(text: str) -> dict[str, tuple[str, str]]:
    """Return UUID and name of GPUs by slot from nvidia-smi: its bus ids have eight digits of domain."""
    uuids = {}
    for line in text.splitlines():
        bus, _, rest = line.partition(", ")
        uuid, _, name = rest.partition(", ")
        domain, _, place = bus.strip().lower().partition(":")
        if len(domain) == NVIDIA_DOMAIN and uuid.startswith("GPU-"):
            uuids[f"{domain[-4:]}:{place.partition('.')[0]}"] = (uuid, name.strip())
    return uuids


def _meet(functions: list[PciFunction], groups: tuple[str, ...]) -> bool:
    return any(each.group in groups for each in functions)
