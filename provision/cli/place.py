"""Where a command runs: here, or inside the network of the lab that the inventory declares."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from provision.cli.names import find_inventory
from provision.cli.state import usage
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
        UsageError: it is not there, or it is wrong.
    """
    from provision.inventory import load  # noqa: PLC0415 - keep --help fast

    return load(find_inventory(name))


def settle(name: str, *, start_lab: bool = False) -> Inventory:
    """Return an inventory that can be reached from where this process runs.

    With a `lab:` section this process is replaced, once, by the same command inside the lab's network; there
    the lab's own file (addresses, fingerprints, keys) is laid over the inventory.

    Args:
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
    if os.environ.get(INSIDE) == settings.name:
        return load(find_inventory(name), overlays=[settings.folder / "site.yaml"])
    _enter(settings, name, start=start_lab)
    raise AssertionError("entering a lab replaces the process")


def open_site(inventory: Inventory, playbook: str | None = None) -> Site:
    """Return the site of an inventory."""
    from provision.api import Site  # noqa: PLC0415 - keep --help fast

    return Site(inventory, playbook=playbook or "site")


def journal_file() -> Path:
    """Return the file of former runs."""
    from provision.api import state_folder  # noqa: PLC0415 - keep --help fast

    return state_folder() / "journal.sqlite"


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


def _enter(settings: LabSettings, name: str, *, start: bool) -> NoReturn:
    """Replace this process by the same command inside the lab."""
    del start
    raise ProvisionError(
        Diagnostic("LAB_NOT_UP", f"the lab {settings.name} is not up", remedy=f"provision lab up {name}")
    )
