"""The command that puts back a file as it was before provision."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from provision.cli.completion import complete_host
from provision.cli.files import InventoryName
from provision.cli.sites import open_site, settle
from provision.cli.state import Debug, on_terminal, say, usage
from provision.values.cancel import Cancel
from provision.values.outcomes import ExitCode


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(restore)


def restore(
    context: typer.Context,
    inventory: InventoryName,
    host: Annotated[
        str,
        typer.Argument(
            metavar="HOST", help="A host of the inventory.", show_default=False, autocompletion=complete_host
        ),
    ],
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A file on it, by its absolute path.", show_default=False)
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Put back a file as it was before provision first changed it.

    Content, mode and owner are kept on the host, in /var/lib/provision/saved/. While the inventory declares
    the file, the next apply writes it again. `destroy --host` puts all files back.
    """
    declared = settle(context, inventory)
    if not yes:
        if not on_terminal():
            raise usage("CONFIRMATION_MISSING", "there is no terminal to ask for confirmation", "give --yes")
        from provision.cli.prompts import yes_or_no  # noqa: PLC0415 - keep --help fast
        from provision.report.style import printable  # noqa: PLC0415 - keep --help fast

        if not yes_or_no(f"Replace {printable(path)} on {printable(host)} by what it was before provision?"):
            return int(ExitCode.WAITING)
    from provision.api.restore import restore as put_back  # noqa: PLC0415 - keep --help fast

    with closing(open_site(declared)) as site:
        is_new = put_back(site, host, path, Cancel())
    say(f"{path} on {host} is as it was." if is_new else f"{path} on {host} was put back already.")
    return 0
