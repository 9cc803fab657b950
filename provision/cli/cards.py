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
from provision.values.suggestions import known_names


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
    from provision.report.cards import print_cards  # noqa: PLC0415 - keep --help fast

    with closing(open_site(declared)) as site:
        seen = cards(site, Cancel(), targets=tuple(target or ()), everything=every)
    print_cards(out(), seen.cards, seen.away)
    return 1 if seen.failed else 0
