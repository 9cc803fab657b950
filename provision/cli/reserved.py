"""The command about reservations that a person makes."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from provision.cli.completion import complete_node
from provision.cli.files import InventoryName
from provision.cli.sites import open_site, settle
from provision.cli.state import Debug, say
from provision.values.cancel import Cancel

if TYPE_CHECKING:
    from provision.api import Site


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(reserved)


def reserved(
    context: typer.Context,
    inventory: InventoryName,
    nodes: Annotated[
        list[str],
        typer.Argument(
            metavar="NODE...",
            help="VMs whose addresses you have reserved on the router.",
            show_default=False,
            autocompletion=complete_node,
        ),
    ],
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Confirm that you reserved addresses on the router.

    This is for `backend: manual`: the next apply creates and starts the VMs instead of waiting for you. Your
    word is kept in a file on the hypervisor, for exactly this MAC and address, until the VM is destroyed. The
    address that the VM gets proves it.
    """
    with closing(open_site(settle(context, inventory))) as site:
        confirm(site, nodes)
    say(f"Next: `provision apply {inventory}`")
    return 0


def confirm(site: Site, nodes: list[str]) -> None:
    """Note a person's word, and say for which reservations."""
    from provision.api.reserved import confirm_reserved  # noqa: PLC0415 - keep --help fast

    for row, is_new in confirm_reserved(site, nodes, Cancel()):
        say(f"{row} is reserved." if is_new else f"{row} was noted already.")
