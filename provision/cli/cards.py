"""The command that lists PCI cards."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from provision.cli.files import InventoryName
from provision.cli.options import Target
from provision.cli.sites import open_site, settle
from provision.cli.state import Debug, out, usage
from provision.values.cancel import Cancel


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("cards")(list_cards)


def list_cards(
    context: typer.Context,
    inventory: InventoryName,
    every: Annotated[
        bool, typer.Option("--all", help="All PCI cards, not only graphics, accelerators and declared ones.")
    ] = False,
    target: Target = None,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """List the PCI cards of hypervisors and GPU nodes: slot, ids, IOMMU group, driver, alias, model, UUID."""
    found = settle(context, inventory)
    unknown = [each for each in target or () if each not in {*found.hypervisors, *found.nodes}]
    if unknown:
        raise usage("NODE_UNKNOWN", f"{found.file} has no host {unknown[0]}")
    from provision.api.cards import cards  # noqa: PLC0415 - keep --help fast
    from provision.report.cards import print_cards  # noqa: PLC0415 - keep --help fast

    with closing(open_site(found)) as site:
        seen = cards(site, Cancel(), targets=tuple(target or ()), everything=every)
    print_cards(out(), seen.cards, seen.away)
    return 1 if seen.failed else 0
