"""The rule about the machine that provision itself runs on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from provision.contracts.rule import Finding, Rule
from provision.contracts.snapshot import Snapshot
from provision.hosts import names
from provision.hosts.facts import HostFacts
from provision.inventory import Inventory
from provision.proxmox.preflight.site import Site
from provision.values.diagnostics import Diagnostic, Severity

CODE = "CONTROLLER_ON_TARGET"


def controller(site: Site, own: str | None = None) -> list[Finding]:
    """Warn when this very machine is one of those that may be rebooted."""
    return [
        Diagnostic(
            CODE,
            f"provision runs on {subject}, which it may have to reboot",
            subject,
            severity=Severity.WARNING,
            remedy="Its reboot comes last; run the same command again after it.",
        )
        for subject in _home(site, own)
    ]


def home(
    inventory: Inventory, snapshots: Mapping[str, Snapshot], own: str | None = None
) -> dict[str, Diagnostic]:
    """Return the subjects on which this process runs, with what a person is told who has to reboot one."""
    return {
        subject: Diagnostic(
            CODE,
            f"provision runs on {names.ssh(subject)}, which has to reboot",
            severity=Severity.WARNING,
            remedy="systemctl reboot; after it, run the same command again",
        )
        for subject in _home(Site(inventory, snapshots, ()), own)
    }


def _home(site: Site, own: str | None) -> list[str]:
    machine = own if own is not None else _machine_id()
    if not machine:
        return []
    return [
        subject
        for subject in (*site.inventory.hypervisors, *site.inventory.nodes)
        if HostFacts(site.seen(names.ssh(subject))).machine_id == machine
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
