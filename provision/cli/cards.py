"""The command that lists PCI cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from provision.cli.files import InventoryName
from provision.cli.options import Target
from provision.cli.sites import open_site, settle
from provision.cli.state import Debug, out, usage
from provision.values.cancel import Cancel
from provision.values.suggestions import known_names

if TYPE_CHECKING:
    from rich.console import Console

    from provision.hosts.cards import HostCard

HEADS = ("host", "slot", "id", "group", "driver", "alias", "model")


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("cards")(list_cards)


def list_cards(
    context: typer.Context,
    inventory: InventoryName,
    every: Annotated[
        bool, typer.Option("--all", help="All PCI cards, not only graphics, accelerators and declared cards.")
    ] = False,
    target: Target = None,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """List the PCI cards of hypervisors and GPU nodes.

    Shows slot, ids, IOMMU group, driver, alias, model and UUID.
    """
    declared = settle(context, inventory)
    hosts = [*declared.hypervisors, *declared.nodes]
    for name in target or ():
        if name not in hosts:
            raise usage("NODE_UNKNOWN", f"{declared.file} has no host {name}", known_names(name, hosts))
    from provision.api.cards import cards  # noqa: PLC0415 - keep --help fast

    with closing(open_site(declared)) as site:
        result = cards(site, Cancel(), targets=tuple(target or ()), everything=every)
    print_cards(out(), result.cards, result.away)
    return 1 if result.failed else 0


def print_cards(console: Console, cards: Sequence[HostCard], away: Mapping[str, str]) -> None:
    """Print one row a card, and the hosts that gave no answer.

    Args:
        console: where to.
        cards: all of them.
        away: by host, why it gave none.
    """
    from provision.report.style import printable, say  # noqa: PLC0415 - keep --help fast
    from provision.report.table import print_table  # noqa: PLC0415 - keep --help fast

    if cards:
        print_table(console, HEADS, [(_cells(card), _remarks(card)) for card in cards])
    else:
        say(console, "There is no card.")
    for host, reason in away.items():
        say(console, printable(f"{host} gave no answer: {reason}"), "yellow")


def _cells(card: HostCard) -> tuple[str, ...]:
    return (
        card.host,
        card.slot,
        " ".join(card.ids),
        ",".join(card.groups) or "-",
        " ".join(dict.fromkeys(card.drivers)),
        ",".join(card.aliases) or "-",
        card.model or "-",
    )


def _remarks(card: HostCard) -> list[str]:
    remarks = [card.uuid] if card.uuid else []
    if card.console:
        remarks.append("drives the console: declare it with drives_console: true")
    if card.shares:
        remarks.append(f"shares its IOMMU group with {', '.join(card.shares)}")
    return remarks
