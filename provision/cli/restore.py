"""The command that puts back a file as it was before provision."""

from __future__ import annotations

import re
import shlex
from contextlib import closing
from typing import Annotated

import typer

from provision.cli.completion import complete_host, complete_inventory
from provision.cli.history import find_run
from provision.cli.sites import journal_file, open_site, settle
from provision.cli.state import Debug, on_terminal, say, usage
from provision.values.cancel import Cancel
from provision.values.outcomes import ExitCode


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(restore)


def restore(
    context: typer.Context,
    inventory: Annotated[
        str,
        typer.Argument(
            metavar="INVENTORY|RUN",
            help="An inventory, or a run: `last`, or the beginning of its id.",
            autocompletion=complete_inventory,
            show_default=False,
        ),
    ],
    host: Annotated[
        str,
        typer.Argument(
            metavar="[HOST]",
            help="A host of the inventory. With a run, only where the run changed the file on several hosts.",
            show_default=False,
            autocompletion=complete_host,
        ),
    ],
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A file on it, by its absolute path.", show_default=False)
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Put back a file as it was before provision first changed it.

    `restore INVENTORY HOST PATH` names the host. `restore RUN PATH` takes the one on which that run changed
    the file. Content, mode and owner are kept on the host, in /var/lib/provision/saved/. While the inventory
    declares the file, the next apply writes it again. `destroy --host` puts all files back.
    """
    if not path:
        inventory, host, path = _of_run(inventory, "", host)
    elif _RUN.fullmatch(inventory):
        inventory, host, path = _of_run(inventory, host, path)
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


_RUN = re.compile(r"last|[0-9]{8}-[0-9]{6}(-[0-9a-f]{0,6})?")
"""How runs are named on the command line; no inventory is called like that."""


def _of_run(name: str, host: str, path: str) -> tuple[str, str, str]:
    """Return inventory, host and path of what a run changed.

    Raises:
        UsageError: there is no such run, or it changed no such file, or on several hosts.
    """
    from provision.api.past_runs import changed_on, inventory_file  # noqa: PLC0415 - keep --help fast

    run, journal = find_run(name), journal_file()
    file = inventory_file(journal, run.id)
    if not file:
        raise usage(
            "RUN_UNKNOWN",
            f"where the inventory of run {run.id} was is not known",
            "name it: `provision restore INVENTORY HOST PATH`",
        )
    systems = changed_on(journal, run.id, path)
    hosts = [system.removesuffix("/ssh") for system in systems if system.endswith("/ssh")]
    if not hosts or (host and host not in hosts):
        raise usage(
            "NOTHING_SAVED",
            f"run {run.id} did not change {path}{f' on {host}' if host else ''}",
            f"see what it changed: `provision show {run.id}`",
        )
    if not host and len(hosts) > 1:
        raise usage(
            "HOST_MISSING",
            f"run {run.id} changed {path} on {', '.join(hosts)}",
            f"name one of them: `provision restore {run.id} HOST {shlex.quote(path)}`",
        )
    return file, host or hosts[0], path
