"""The command that hands the hosts of an inventory to other programs."""

from __future__ import annotations

from typing import Annotated

import typer

from provision.cli.files import InventoryName
from provision.cli.sites import read_with_lab
from provision.cli.state import Debug, out, usage
from provision.values.suggestions import known_names


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(output)


def output(
    inventory: InventoryName,
    form: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="json, ansible or ssh-config.")
    ] = "json",
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Print the hosts of an inventory for other programs.

    `ansible` is an inventory of Ansible, `ssh-config` a file for the line `Include` of OpenSSH's client.
    Nothing is asked, and no secret is printed.
    """
    from provision.hosts.outputs import FORMATS  # noqa: PLC0415 - keep --help fast

    if form not in FORMATS:
        raise usage("FORMAT_UNKNOWN", f"there is no format {form!r}", known_names(form, FORMATS))
    text = FORMATS[form](read_with_lab(inventory))
    out().print(text, end="", markup=False, highlight=False, soft_wrap=True)
    return 0
