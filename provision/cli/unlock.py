"""The command about the run lock of an inventory."""

from __future__ import annotations

import time
from contextlib import closing

import typer

from provision.cli.files import InventoryName
from provision.cli.sites import open_site, read
from provision.cli.state import Debug, say


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(unlock)


def unlock(
    inventory: InventoryName,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Show who holds the run lock of an inventory.

    The entry of a run that is dead is removed. A lock that is held is never taken away: the kernel frees it
    when its process ends, so end that process (exit 6 names it). Locks on hosts work in the same way: nothing
    has to be removed on a host.
    """
    from provision.engine.run_lock import clear_run_lock  # noqa: PLC0415 - keep --help fast

    declared = read(inventory)
    with closing(open_site(declared)) as site:
        former = clear_run_lock(site.folder / "lock")
    if former is None:
        say(f"{declared.name} is not locked.")
        return 0
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(former.since))
    say(
        f"{declared.name} is not locked. The run {former.run} of {former.who} (process {former.pid}, started "
        f"{since}) is dead, and its entry was removed."
    )
    return 0
