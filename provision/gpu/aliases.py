"""Names of cards and the UUIDs behind them, for whoever hands them to the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from provision.contracts.query import Unknown
from provision.gpu.facts import GpuCard
from provision.inventory import Inventory
from provision.values.numbers import is_number

Cards = Mapping[str, Sequence[GpuCard] | Unknown]
"""The cards of each node, by PCI address."""


def card_uuids(inventory: Inventory, cards: Cards) -> dict[str, tuple[str, ...]]:
    """Return the UUIDs of each alias: of `sharing.cards`, and of cards that a hypervisor passes to a VM.

    An alias is left out as long as one of its cards has not answered: half of it would be another thing.
    """
    resolved: dict[str, tuple[str, ...]] = {}
    for alias, slots in _slots(inventory):
        uuids = [_uuid(cards, node, number) for node, number in slots]
        if uuids and all(uuids):
            resolved[alias] = tuple(uuids)
    return resolved


def _slots(inventory: Inventory) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Yield aliases with their slots: the node, and the card's place in the order of PCI addresses."""
    for node in inventory.nodes.values():
        # Proxmox VE gives guest addresses in the order of the hostpci entries.
        for number, alias in enumerate(node.gpus):
            yield alias, [(node.name, number)]
    if inventory.sharing is not None:
        for alias, slots in inventory.sharing.cards.items():
            pairs = [slot.rpartition("/") for slot in slots]
            yield alias, [(node, int(number)) for node, _, number in pairs if is_number(number)]


def _uuid(cards: Cards, node: str, number: int) -> str:
    uuids = cards.get(node, ())
    if isinstance(uuids, Unknown) or number >= len(uuids):
        return ""
    return uuids[number].uuid
