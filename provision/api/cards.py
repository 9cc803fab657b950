"""PCI cards of a site's hosts, as they are: for the person who writes the inventory."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass

from provision.api.site import Site
from provision.contracts.query import Unknown
from provision.engine.observe import Questions, observe
from provision.engine.session import AwayError
from provision.hosts.facts import HostFacts
from provision.hosts.queries.shell import Shell
from provision.hosts.resources.pci import PciFunction, PciFunctions
from provision.inventory import Inventory
from provision.values.cancel import Cancel

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


@dataclass(frozen=True, slots=True)
class Cards:
    """All cards, by host why it gave none, and whether that is a fault (it is none if a VM is off)."""

    cards: tuple[HostCard, ...]
    away: Mapping[str, str]
    failed: bool = False


def cards(site: Site, cancel: Cancel, *, targets: tuple[str, ...] = (), everything: bool = False) -> Cards:
    """Ask hypervisors, and nodes that declare cards, for their cards; secrets are masked.

    Args:
        site: whose hosts.
        cancel: ends the waiting.
        targets: these hosts only, whatever they declare.
        everything: all cards; else display controllers, accelerators and those in the inventory.
    """
    hosts = _hosts(site.inventory, targets)
    questions = Questions()
    questions.add({f"{name}/ssh": (PciFunctions(), MODELS, UUIDS) for name in hosts})
    questions.close_over(site.session)
    observe(site.session, questions.by_system, {}, cancel)
    mask = site.redactor.text
    result: list[HostCard] = []
    away: dict[str, str] = {}
    failed = False
    for name in hosts:
        system = site.session.systems[f"{name}/ssh"]
        if system.snapshot is None:
            away[name] = system.error.diagnostics[0].summary if system.error is not None else "not asked"
            failed |= not isinstance(system.error, AwayError)
            continue
        facts = HostFacts(system.snapshot)
        functions = facts.functions
        if isinstance(functions, Unknown):
            away[name] = functions.reason
            failed = True
            continue
        models, uuids = models_of(mask(facts.output(MODELS))), uuids_of(mask(facts.output(UUIDS)))
        result += (
            card
            for card in cards_of(name, functions, aliases(site.inventory, name), models, uuids)
            if everything or card.aliases or _is_display(functions, card.slot)
        )
    return Cards(tuple(result), {name: mask(reason) for name, reason in away.items()}, failed)


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
    names_by_card: dict[str, list[str]] = {}
    hypervisor = inventory.hypervisors.get(host)
    if hypervisor is not None:
        for name, card in hypervisor.cards.items():
            names_by_card.setdefault(card.address, []).append(name)
        return {key: tuple(card_names) for key, card_names in names_by_card.items()}
    node = inventory.nodes[host]
    owner = inventory.hypervisor_of(node)
    for name in node.gpus:
        given = owner.cards.get(name) if owner is not None else None
        if given is not None and given.id is not None:
            names_by_card.setdefault(given.id.lower(), []).append(name)
    return {key: tuple(card_names) for key, card_names in names_by_card.items() if len(card_names) == 1}


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


def _hosts(inventory: Inventory, targets: tuple[str, ...]) -> tuple[str, ...]:
    if targets:
        return tuple(name for name in (*inventory.hypervisors, *inventory.nodes) if name in targets)
    nodes = inventory.nodes.values()
    declaring = (node.name for node in nodes if node.gpus or node.gpu_cards or not node.is_virtual)
    return (*inventory.hypervisors, *declaring)


def _is_display(functions: tuple[PciFunction, ...], slot: str) -> bool:
    return any(function.slot == slot and function.is_display for function in functions)


def _meet(functions: list[PciFunction], groups: tuple[str, ...]) -> bool:
    return any(function.group in groups for function in functions)
