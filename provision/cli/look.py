"""Commands that look at what is there: cards, unlock."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Annotated

import typer

from provision.cli.files import InventoryName
from provision.cli.place import open_site, read, settle
from provision.cli.runs import Target
from provision.cli.state import Debug, out, usage
from provision.values.cancel import Cancel


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("cards")(list_cards)
    app.command()(unlock)


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


def unlock(
    inventory: InventoryName,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Say who holds the run lock of an inventory, and remove what a dead run left of it.

    A lock that is held is never taken away: it is the kernel's and ends with its process, so end that (exit 6
    says which one). Locks on hosts are of the same kind and end with the process group that holds them there:
    nothing has to be removed on a host.
    """
    from provision.engine.run_lock import clear_run_lock  # noqa: PLC0415 - keep --help fast

    found = read(inventory)
    with closing(open_site(found)) as site:
        left = clear_run_lock(site.folder / "lock")
    if left is None:
        out().print(f"{found.name} is not locked", soft_wrap=True)
        return 0
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(left.since))
    out().print(
        f"{found.name} is not locked: run {left.run} of {left.who} (process {left.pid}), begun {since}, "
        "is gone; its entry was removed",
        soft_wrap=True,
    )
    return 0
