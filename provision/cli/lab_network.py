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
    from provision.lab.site import Status

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
def lab_errors(name: str, inventory: str) -> Iterator[None]:
    """Turn what the lab says into a diagnostic; it needs root for nearly everything.

    Args:
        name: the lab's.
        inventory: what the user typed, for the commands of remedies.

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
        remedy = problem.remedy.replace("INVENTORY", inventory)
        raise ProvisionError(
            Diagnostic("LAB_FAILED", first, name, evidence=tuple(rest), remedy=remedy)
        ) from problem


def start(inventory: Inventory) -> None:
    """Start the lab of an inventory, as far as it does not run.

    Raises:
        LabError: it does not come up; the consoles that this shows are masked of secrets that are at hand.
    """
    from provision.inventory import open_at_hand  # noqa: PLC0415 - keep --help fast
    from provision.lab import site  # noqa: PLC0415 - keep --help fast

    open_at_hand(inventory)
    site.up(lab_settings(inventory), say)


def enter(inventory: Inventory, name: str, argv: Sequence[str], *, may_start: bool) -> NoReturn:
    """Replace this process by the same command inside the lab.

    Args:
        inventory: whose lab.
        name: what the user typed for it.
        argv: arguments of the command.
        may_start: start a lab that is not up, rather than say so.

    Raises:
        LabError: the lab is another one than the inventory's, or does not come up.
        ProvisionError: it is not up.
    """
    from provision.lab import site  # noqa: PLC0415 - keep --help fast

    settings = lab_settings(inventory)
    site.refuse_other(settings)
    found = site.status(settings.name)
    if not found.up:
        if not may_start:
            summary, remedy = f"the lab of {name} is not up", f"provision lab up {name}"
            raise ProvisionError(
                Diagnostic("LAB_NOT_UP", summary, settings.name, evidence=_missing(found), remedy=remedy)
            )
        start(inventory)
    os.environ[INSIDE] = str(settings.folder)
    # -P: what lies in the user's folder is not imported.
    site.enter(settings.name, [sys.executable, "-P", "-m", "provision.cli.main", *argv])


def _missing(lab: Status) -> tuple[str, ...]:
    """Return what of a lab does not serve, in words."""
    return tuple(
        f"{part.kind} {part.name} is {part.state}: {part.detail}".removesuffix(": ")
        for part in lab.parts
        if part.state not in {"up", "off"}
    )


def say(line: str) -> None:
    """Tell what the lab does."""
    print(f"lab: {line}", file=sys.stderr, flush=True)
