"""Where a command runs: here, or inside the network of the lab that the inventory declares."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from provision.cli.names import find_inventory, saved_plan
from provision.cli.state import state, usage
from provision.values.diagnostics import Diagnostic
from provision.values.errors import ProvisionError
from provision.values.outcomes import ExitCode

if TYPE_CHECKING:
    from provision.api import Site
    from provision.inventory import Inventory
    from provision.lab.settings import LabSettings

INSIDE = "PROVISION_INSIDE_LAB"
"""Set, to the lab's name, for the process that was started inside a lab: entering happens once."""


def read(name: str) -> Inventory:
    """Return the inventory that a name means, as the user wrote it.

    Raises:
        UsageError: it is not there, or it is wrong, or it is a saved plan.
    """
    from provision.inventory import load  # noqa: PLC0415 - keep --help fast

    inventory, saved, _ = saved_plan(name)
    if saved is not None:
        raise usage(
            "PLAN_GIVEN",
            f"{name} is no inventory: this is a saved plan of {inventory}",
            f"give {inventory} here; provision apply {name} applies the plan",
        )
    return load(find_inventory(name))


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
    from provision.inventory import load  # noqa: PLC0415 - keep --help fast

    inventory = read(name)
    if inventory.lab is None:
        return inventory
    settings = lab_settings(inventory)
    if os.environ.get(INSIDE) != settings.name:
        with lab_errors(settings.name):
            _enter(settings, name, state(context).argv, start=start_lab)
    return load(find_inventory(name), overlays=[settings.folder / "site.yaml"])


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
    from provision.engine.run_lock import unusable  # noqa: PLC0415 - keep --help fast

    folder = state_folder()
    try:
        if not stat.S_ISDIR(folder.stat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except FileNotFoundError:
        pass
    except OSError as problem:
        raise unusable(folder, problem) from None
    return folder


def lab_settings(inventory: Inventory) -> LabSettings:
    """Return the lab that an inventory declares.

    Raises:
        UsageError: there is none, or no lab can be like that.
    """
    from provision.lab.settings import Card, LabError, LabSettings  # noqa: PLC0415 - keep --help fast

    lab = inventory.lab
    if lab is None:
        remedy = "inventories/lab.yaml has one" if inventory.file else ""
        raise usage("LAB_NOT_DECLARED", f"{inventory.file} has no lab: section", remedy)
    network = inventory.network
    source = inventory.source(("lab",))
    if network is None or network.gateway is None:
        summary = "a lab needs network.cidr and network.gateway"
        raise ProvisionError(Diagnostic("LAB_INCOMPLETE", summary, source=source), exit_code=ExitCode.USAGE)
    try:
        return LabSettings(
            name=inventory.name,
            driver=lab.driver,
            hypervisors={name: each.address for name, each in inventory.hypervisors.items()},
            cidr=str(network.cidr),
            gateway=network.gateway,
            hypervisor_memory_mib=lab.hypervisor.memory,
            cards=tuple(Card(each.name, each.shares_group) for each in lab.hypervisor.cards),
            **({"images": tuple(inventory.images)} if inventory.images else {}),
        )
    except LabError as problem:
        raise ProvisionError(
            Diagnostic("LAB_INCOMPLETE", str(problem), source=source), exit_code=ExitCode.USAGE
        ) from problem


@contextmanager
def lab_errors(name: str) -> Iterator[None]:
    """Turn what the lab says into a diagnostic; it needs root for nearly everything.

    Raises:
        ProvisionError: the lab cannot do it.
    """
    from provision.lab.settings import LabError  # noqa: PLC0415 - keep --help fast

    if os.geteuid() != 0:
        summary = "a lab is made of network namespaces and machines of its own, and needs root"
        raise ProvisionError(Diagnostic("LAB_NEEDS_ROOT", summary, name, remedy="run the command as root"))
    try:
        yield
    except LabError as problem:
        first, *rest = str(problem).splitlines() or [""]
        raise ProvisionError(Diagnostic("LAB_FAILED", first, name, evidence=tuple(rest))) from problem


def _enter(settings: LabSettings, name: str, argv: Sequence[str], *, start: bool) -> NoReturn:
    """Replace this process by the same command inside the lab."""
    from provision.lab import site  # noqa: PLC0415 - keep --help fast

    if not site.status(settings.name).up:
        if not start:
            summary = f"the lab of {name} is not up"
            raise ProvisionError(
                Diagnostic("LAB_NOT_UP", summary, settings.name, remedy=f"provision lab up {name}")
            )
        site.up(settings, say)
    os.environ[INSIDE] = settings.name
    # -P: what lies in the user's folder is not imported.
    site.enter(settings.name, [sys.executable, "-P", "-m", "provision.cli.main", *argv])


def say(line: str) -> None:
    """Tell what the lab does."""
    print(f"lab: {line}", file=sys.stderr, flush=True)
