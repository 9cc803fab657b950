"""The rule about the machine that provision itself runs on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provision.contracts.rule import Evidence, Finding, Rule
from provision.contracts.snapshot import Snapshot
from provision.hosts import names
from provision.hosts.facts import MACHINE_ID, HostFacts
from provision.inventory import Inventory
from provision.values.diagnostics import Diagnostic, Severity

CODE = "CONTROLLER_ON_TARGET"


def controller(evidence: Evidence, own: str | None = None) -> list[Finding]:
    """Warn when this very machine is one of those that may be rebooted."""
    return [
        Diagnostic(
            CODE,
            f"provision runs on {subject}, which it may have to reboot",
            subject,
            severity=Severity.WARNING,
            remedy="Its reboot comes last; run the same command again after it.",
        )
        for subject in _home(evidence, own)
    ]


def home(
    inventory: Inventory, snapshots: Mapping[str, Snapshot], own: str | None = None
) -> dict[str, Diagnostic]:
    """Return the subjects on which this process runs, with what a person who has to reboot one reads."""
    return {
        subject: Diagnostic(
            CODE,
            f"provision runs on {names.ssh(subject)}, which has to reboot",
            severity=Severity.WARNING,
            remedy="reboot this machine yourself: `systemctl reboot`, then run the same command again",
        )
        for subject in _home(Evidence(inventory, snapshots, ()), own)
    }


def _home(evidence: Evidence, own: str | None) -> list[str]:
    machine = own if own is not None else _machine_id()
    if not machine:
        return []
    return [
        subject
        for subject in (*evidence.inventory.hypervisors, *evidence.inventory.nodes)
        if evidence.covers(names.ssh(subject))
        and HostFacts(evidence.snapshot(names.ssh(subject))).machine_id == machine
    ]


def _machine_id() -> str:
    try:
        return Path("/etc/machine-id").read_text().strip()
    except OSError:
        return ""


RULES = (
    Rule(
        (CODE,),
        "provision runs on a machine that it may reboot",
        "run the same command again after the reboot",
        controller,
        severity=Severity.WARNING,
        removal=True,
    ),
)


def evidence(inventory: Inventory) -> dict[str, tuple[Any, ...]]:
    """Return the questions that these rules look at beyond those of roles, by system."""
    return {names.ssh(subject): (MACHINE_ID,) for subject in (*inventory.hypervisors, *inventory.nodes)}
