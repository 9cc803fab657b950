"""From what the user types to an inventory, and from that to its site and the journal of its runs."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from provision.cli.lab_network import INSIDE, enter, lab_errors, lab_settings
from provision.cli.names import find_inventory, saved_plan
from provision.cli.state import state, usage
from provision.values.redaction import Redactor

if TYPE_CHECKING:
    from provision.api import Site
    from provision.inventory import Inventory


def read(name: str, redactor: Redactor | None = None) -> Inventory:
    """Return the inventory that a name means, as the user wrote it.

    Args:
        name: what the user typed.
        redactor: learns every secret that is opened.

    Raises:
        UsageError: it is not there, or it is wrong, or it is a saved plan.
    """
    from provision.api.domains import load_inventory as load  # noqa: PLC0415 - keep --help fast

    inventory, saved, _ = saved_plan(name)
    if saved is not None:
        raise usage(
            "PLAN_GIVEN",
            f"{name} is not an inventory: it is a saved plan of {inventory}",
            f"give {inventory} to this command, or apply the plan: `provision apply {name}`",
        )
    return load(find_inventory(name), redactor=redactor)


def settle(context: typer.Context, name: str, *, start_lab: bool = False) -> Inventory:
    """Return an inventory that can be reached from where this process runs.

    With a `lab:` section this process is replaced, once, by the same command inside the lab's network; there
    the lab's own file (addresses, fingerprints, keys) is laid over the inventory.

    Args:
        context: of the command; knows its arguments.
        name: what the user typed.
        start_lab: start a lab that is not up (`apply`), rather than say so.

    Raises:
        UsageError: the inventory is wrong.
        ProvisionError: the lab is not up, or cannot be started.
    """
    from provision.api.domains import load_inventory as load  # noqa: PLC0415 - keep --help fast

    redactor = state(context).redactor
    inventory = read(name, redactor)
    if inventory.lab is None:
        return inventory
    settings = lab_settings(inventory)
    if os.environ.get(INSIDE) != str(settings.folder):
        with lab_errors(settings.name, name):
            enter(inventory, name, state(context).argv, may_start=start_lab)
    return load(find_inventory(name), overlays=[settings.overlay], redactor=redactor)


def read_with_lab(name: str) -> Inventory:
    """Return an inventory with the lab's own file laid over it, where there is one; enters no lab.

    Raises:
        UsageError: as `read`, or the lab's file is wrong.
    """
    from provision.api.domains import load_inventory as load  # noqa: PLC0415 - keep --help fast

    inventory = read(name)
    if inventory.lab is None:
        return inventory
    overlay = lab_settings(inventory).overlay
    return load(find_inventory(name), overlays=[overlay]) if os.access(overlay, os.R_OK) else inventory


def open_site(inventory: Inventory, playbook: str | None = None) -> Site:
    """Return the site of an inventory.

    Raises:
        UsageError: its state cannot be kept where it should be.
    """
    from provision.api import Site  # noqa: PLC0415 - keep --help fast

    _state_folder()
    return Site(inventory, playbook=playbook or "site")


def journal_file() -> Path:
    """Return the file of former runs.

    Raises:
        UsageError: there can be none where it should be.
    """
    return _state_folder() / "journal.sqlite"


def _state_folder() -> Path:
    """Return the folder of the state, which need not exist yet; nothing is made.

    Raises:
        UsageError: something else is in its place, or above it.
    """
    from provision.api import state_folder  # noqa: PLC0415 - keep --help fast
    from provision.engine.run_lock import usable  # noqa: PLC0415 - keep --help fast

    folder = state_folder()
    with usable(folder), suppress(FileNotFoundError):
        if not stat.S_ISDIR(folder.stat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return folder
