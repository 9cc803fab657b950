"""Pools of cards: their cards are equal, are in one pool only, and are enough for the VMs that shall run."""

from __future__ import annotations

from provision.inventory.models.hypervisor import Card, Hypervisor
from provision.inventory.models.inventory import Inventory
from provision.inventory.rules.findings import Findings
from provision.inventory.tree import KeyPath


def check(
    inventory: Inventory, hypervisor: Hypervisor, given: dict[str, KeyPath], findings: Findings
) -> None:
    """Find problems of the pools of a hypervisor.

    Args:
        inventory: all of it.
        hypervisor: whose pools.
        given: where each card is given away; a card of a pool is added, so that no VM takes it by its alias.
        findings: collects the problems.
    """
    for name, aliases in hypervisor.card_pools.items():
        path: KeyPath = ("hypervisors", hypervisor.name, "card_pools", name)
        if name in hypervisor.cards:
            findings.conflict(f"{name} is a card and a pool of {hypervisor.name}", path)
        if not aliases:
            findings.add("INVENTORY_VALUE", f"the pool {name} has no cards", path)
        section = ("hypervisors", hypervisor.name, "cards")
        for index, alias in enumerate(aliases):
            place: KeyPath = (*path, index)
            if findings.reference(f"card of {hypervisor.name}", alias, section, place):
                findings.unique("the card", f"{alias} of {hypervisor.name}", place, given)
        cards = {alias: hypervisor.cards[alias] for alias in aliases if alias in hypervisor.cards}
        _equal(name, cards, section, findings)
        nodes = [
            node.name
            for node in inventory.nodes.values()
            if node.hypervisor == hypervisor.name and node.manage and name in node.cards
            if node.power_state == "running"
        ]
        if len(nodes) > len(aliases):
            findings.conflict(
                f"{len(nodes)} VMs that must run take a card of the pool {name}, which has {len(aliases)}:"
                f" {', '.join(nodes)}",
                path,
                remedy="add cards to the pool, or stop VMs: `power: stopped`",
            )


def _equal(pool: str, cards: dict[str, Card], section: KeyPath, findings: Findings) -> None:
    """Refuse cards that are not passed alike: which of them a VM gets is decided when it starts."""
    first = next(iter(cards.values()), None)
    for alias, card in cards.items():
        path: KeyPath = (*section, alias)
        if card.id is None:
            findings.lacks(f"card {alias} of the pool {pool}", "id", path)
        elif first is not None and (first.id, first.rom) != (card.id, card.rom):
            findings.conflict(f"cards of the pool {pool} differ in `id` or `rom`", path)
        for key, is_set in (
            ("functions", bool(card.functions)),  # one mapping for each function: they could be of two cards
            ("raw", card.raw),
            ("drives_console", card.drives_console),  # which VM takes the screen would be unknown
        ):
            if is_set:
                findings.conflict(f"a card of a pool cannot have `{key}`", (*path, key))
