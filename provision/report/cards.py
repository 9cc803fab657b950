"""PCI cards as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from rich.text import Text

from provision.report.style import printable

if TYPE_CHECKING:
    from rich.console import Console

HEADS = ("host", "slot", "id", "group", "driver", "alias", "model")


class Card(Protocol):
    """One card, as the library hands it over (provision.api.cards.HostCard says what each part means)."""

    @property
    def host(self) -> str: ...  # noqa: D102 - see the class
    @property
    def slot(self) -> str: ...  # noqa: D102 - see the class
    @property
    def ids(self) -> tuple[str, ...]: ...  # noqa: D102 - see the class
    @property
    def model(self) -> str: ...  # noqa: D102 - see the class
    @property
    def groups(self) -> tuple[str, ...]: ...  # noqa: D102 - see the class
    @property
    def shares(self) -> tuple[str, ...]: ...  # noqa: D102 - see the class
    @property
    def drivers(self) -> tuple[str, ...]: ...  # noqa: D102 - see the class
    @property
    def console(self) -> bool: ...  # noqa: D102 - see the class
    @property
    def aliases(self) -> tuple[str, ...]: ...  # noqa: D102 - see the class
    @property
    def uuid(self) -> str: ...  # noqa: D102 - see the class


def print_cards(console: Console, cards: Sequence[Card], away: Mapping[str, str]) -> None:
    """Print one row a card, with remarks below it, and the hosts that gave no answer.

    Args:
        console: where to.
        cards: all of them.
        away: by host, why it gave none.
    """
    rows = [HEADS, *(_row(each) for each in cards)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADS))]
    for number, row in enumerate(rows if cards else ()):
        line = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        console.print(Text(line, style="" if number else "bold"), soft_wrap=True)
        for remark in _remarks(cards[number - 1]) if number else ():
            console.print(Text(" " * (widths[0] + 2) + remark, style="dim"), soft_wrap=True)
    if not cards:
        console.print(Text("No card was found."))
    for host, reason in away.items():
        console.print(Text(f"{printable(host)} was not seen: {printable(reason)}", style="yellow"))


def _row(card: Card) -> tuple[str, ...]:
    cells = (
        card.host,
        card.slot,
        " ".join(card.ids),
        ",".join(card.groups) or "-",
        " ".join(dict.fromkeys(card.drivers)),
        ",".join(card.aliases) or "-",
        card.model or "-",
    )
    return tuple(map(printable, cells))


def _remarks(card: Card) -> list[str]:
    found = []
    if card.uuid:
        found.append(printable(card.uuid))
    if card.console:
        found.append("drives the console: declare it with drives_console: true")
    if card.shares:
        found.append(f"shares its IOMMU group with {', '.join(map(printable, card.shares))}")
    return found
