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
"""Set to the folder of the lab in a process that was started inside it: a process enters once."""


def lab_settings(inventory: Inventory) -> LabSettings:
    """Return the lab that an inventory declares.

    Raises:
        UsageError: it declares none.
        ProvisionError: no lab can be like that.
    """
    from provision.lab.settings import Card, LabError, LabSettings  # noqa: PLC0415 - keep --help fast

    lab = inventory.lab
    if lab is None:
        remedy = "see inventories/lab.yaml for an example" if inventory.file else ""
        raise usage("LAB_NOT_DECLARED", f"{inventory.file} has no `lab:` section", remedy)
    network = inventory.network
    source = inventory.source(("lab",))
    if network is None or network.gateway is None or network.dhcp is None:
        summary = "a lab needs network.cidr, network.gateway and network.dhcp"
        raise ProvisionError(Diagnostic("LAB_INCOMPLETE", summary, source=source), exit_code=ExitCode.USAGE)
    try:
        return LabSettings(
            name=inventory.name,
            driver=lab.driver,
            hypervisors={name: host.address for name, host in inventory.hypervisors.items()},
            cidr=str(network.cidr),
            gateway=network.gateway,
            hypervisor_memory_mib=lab.hypervisor.memory,
            cards=tuple(Card(card.name, card.shares_group) for card in lab.hypervisor.cards),
            **({"images": tuple(inventory.images)} if inventory.images else {}),
        )
    except LabError as problem:
        raise ProvisionError(
            Diagnostic("LAB_INCOMPLETE", str(problem), source=source), exit_code=ExitCode.USAGE
        ) from problem


@contextmanager
def lab_errors(name: str, inventory: str) -> Iterator[None]:
    """Turn an error of the lab into a diagnostic; nearly everything needs root.

    Args:
        name: the lab's.
        inventory: what the user typed, for the commands of remedies.

    Raises:
        ProvisionError: the lab cannot do it.
    """
    from provision.lab.settings import LabError  # noqa: PLC0415 - keep --help fast

    if os.geteuid() != 0:
        summary = "the lab needs root: it creates network namespaces and machines of its own"
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
    """Start the parts of the lab that do not run.

    Raises:
        LabError: it does not start; the consoles that this shows have known secrets masked.
    """
    from provision.inventory import open_at_hand  # noqa: PLC0415 - keep --help fast
    from provision.lab import site  # noqa: PLC0415 - keep --help fast

    open_at_hand(inventory)
    site.up(lab_settings(inventory), report_progress)


def enter(inventory: Inventory, name: str, argv: Sequence[str], *, may_start: bool) -> NoReturn:
    """Replace this process by the same command inside the lab.

    Args:
        inventory: whose lab.
        name: what the user typed for it.
        argv: arguments of the command.
        may_start: start a lab that is not up; otherwise that is an error.

    Raises:
        LabError: the lab was started with other settings, or does not start.
        ProvisionError: it is not up.
    """
    from provision.lab import site  # noqa: PLC0415 - keep --help fast

    settings = lab_settings(inventory)
    site.refuse_other(settings)
    lab = site.status(settings.name)
    if not lab.up:
        if not may_start:
            summary, remedy = f"the lab of {name} is not up", f"start it: `provision lab up {name}`"
            raise ProvisionError(
                Diagnostic("LAB_NOT_UP", summary, settings.name, evidence=_missing(lab), remedy=remedy)
            )
        start(inventory)
    os.environ[INSIDE] = str(settings.folder)
    # -P: no module is imported from the user's folder.
    site.enter(settings.name, [sys.executable, "-P", "-m", "provision.cli.main", *argv])


def _missing(lab: Status) -> tuple[str, ...]:
    """Return the parts of a lab that do not work, in words."""
    return tuple(
        f"{part.kind} {part.name} is {part.state}: {part.detail}".removesuffix(": ")
        for part in lab.parts
        if part.state not in {"up", "off"}
    )


def report_progress(line: str) -> None:
    """Print what the lab does."""
    print(f"lab: {line}", file=sys.stderr, flush=True)
