"""Commands about one VM: rebuild, import."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from provision.cli.files import InventoryName
from provision.cli.place import open_site, settle
from provision.cli.state import Debug, out
from provision.values.cancel import Cancel

NodeName = Annotated[str, typer.Argument(metavar="NODE", help="A VM of the inventory.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(rebuild)


def rebuild(
    context: typer.Context,
    inventory: InventoryName,
    node: NodeName,
    undo: Annotated[bool, typer.Option("--undo", help="Take the mark off again.")] = False,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Mark a VM to be made anew by the next apply, with new disks; that apply needs the consent `replace`.

    The mark is a token in the VM's notes, so every controller sees it; the VM that is made instead has none.
    An apply that is cut off in between is finished by the next one.
    """
    from provision.api.vms import mark_for_rebuild  # noqa: PLC0415 - keep --help fast

    found = settle(context, inventory)
    with closing(open_site(found)) as site:
        _, wrote = mark_for_rebuild(site, node, Cancel(), undo=undo)
    if undo:
        text = f"{node} stays as it is" if wrote else f"{node} was not marked"
    else:
        text = f"{node} is marked" if wrote else f"{node} is marked already"
        text += f" and is made anew by: provision apply {inventory} --allow replace"
    out().print(text, soft_wrap=True)
    return 0
