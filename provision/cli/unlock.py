"""The command that tells who holds the run lock of an inventory."""

from __future__ import annotations

import time
from contextlib import closing

import typer

from provision.cli.files import InventoryName
from provision.cli.sites import open_site, read
from provision.cli.state import Debug, out


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(unlock)


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
