"""The lab that an inventory declares, and this process inside its network."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from provision.cli.state import usage
from provision.values.diagnostics import Diagnostic
from provision.values.errors import ProvisionError
from provision.values.outcomes import ExitCode

if TYPE_CHECKING:
    from provision.inventory import Inventory
    from provision.lab.settings import LabSettings

INSIDE = "PROVISION_INSIDE_LAB"
"""Set, to the lab's name, for the process that was started inside a lab: entering happens once."""


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
    if network is None or network.gateway is None or network.dhcp is None:
        summary = "a lab needs network.cidr, network.gateway and network.dhcp"
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


def enter(settings: LabSettings, name: str, argv: Sequence[str], *, start: bool) -> NoReturn:
    """Replace this process by the same command inside the lab."""
    from provision.lab import site  # noqa: PLC0415 - keep --help fast

    if not site.status(settings.name).up:
        if not start:
            summary = f"the lab of {name} is not up"
            raise ProvisionError(
                Diagnostic("LAB_NOT_UP", summary, settings.name, remedy=f"provision lab up {name}")
            )
        site.up(settings, say)
    os.environ[INSIDE] = str(settings.folder)
    # -P: what lies in the user's folder is not imported.
    site.enter(settings.name, [sys.executable, "-P", "-m", "provision.cli.main", *argv])


def say(line: str) -> None:
    """Tell what the lab does."""
    print(f"lab: {line}", file=sys.stderr, flush=True)
