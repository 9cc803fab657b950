"""PCI cards of a site's hosts, as they are: for the person who writes the inventory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from provision.api.site import Site
from provision.contracts.query import Unknown
from provision.engine.observe import observe
from provision.engine.session import AwayError
from provision.hosts.cards import MODELS, UUIDS, HostCard, aliases, cards_of, models_of, uuids_of
from provision.hosts.facts import HostFacts
from provision.hosts.resources.pci import PciFunction, PciFunctions
from provision.inventory import Inventory
from provision.values.cancel import Cancel


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
    questions = {f"{name}/ssh": (PciFunctions(), MODELS, UUIDS) for name in hosts}
    observe(site.session, questions, {}, cancel)
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


def _hosts(inventory: Inventory, targets: tuple[str, ...]) -> tuple[str, ...]:
    if targets:
        return tuple(name for name in (*inventory.hypervisors, *inventory.nodes) if name in targets)
    nodes = inventory.nodes.values()
    declaring = (node.name for node in nodes if node.gpus or node.gpu_cards or not node.is_virtual)
    return (*inventory.hypervisors, *declaring)


def _is_display(functions: tuple[PciFunction, ...], slot: str) -> bool:
    return any(function.slot == slot and function.is_display for function in functions)
