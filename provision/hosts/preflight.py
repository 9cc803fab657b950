"""The rule about the machine that provision itself runs on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provision.contracts.effect import Effect
from provision.contracts.remedy import ApiCall, Fix
from provision.contracts.rule import Evidence, Finding, Rule
from provision.contracts.snapshot import Snapshot
from provision.hosts import identity_rules, names, site_rules
from provision.hosts.facts import MACHINE_ID, HostFacts
from provision.hosts.queries.identity import Identity
from provision.inventory import Inventory
from provision.values.diagnostics import Diagnostic, Severity

CODE = "CONTROLLER_ON_TARGET"


def controller(evidence: Evidence, own: str | None = None) -> list[Finding]:
    """Warn when this very machine is one that this run reboots, if the policy allows it."""
    return [
        Diagnostic(
            CODE,
            f"provision runs on {subject}, which it may have to reboot",
            subject,
            severity=Severity.WARNING,
            remedy="Its reboot comes last; run the same command again after it.",
        )
        for subject in _home(evidence, own)
        if _may_reboot(evidence, subject)
    ]


def _may_reboot(evidence: Evidence, subject: str) -> bool:
    """Whether a change, or what an earlier run left to do, reboots a subject's machine or cuts its power."""
    system = names.ssh(subject)
    snapshot = evidence.snapshot(system)
    pending = snapshot.pending if isinstance(snapshot, Snapshot) else ()
    if any(_ends_it(marker.effect) for marker in pending):
        return True
    for resource in evidence.resources:
        remedy = evidence.remedy(resource)
        if not isinstance(remedy, Fix | ApiCall):
            continue
        for effect in (*remedy.effects, *remedy.risks):
            if _ends_it(effect) and (effect.target == subject or resource.key.system == system):
                return True
    return False


def _ends_it(effect: Effect) -> bool:
    return effect.cls.reboots or effect.cls.voids_target


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
        "provision runs on a machine that this run may reboot",
        "run the same command again after the reboot",
        controller,
        severity=Severity.WARNING,
        removal=True,
        of_resources=True,
    ),
    *identity_rules.RULES,
    *site_rules.RULES,
)


def evidence(inventory: Inventory) -> dict[str, tuple[Any, ...]]:
    """Return the questions that these rules look at beyond those of roles, by system."""
    asked: dict[str, tuple[Any, ...]] = {names.ssh(name): (MACHINE_ID,) for name in inventory.hypervisors}
    more = site_rules.evidence(inventory)
    for name in map(names.ssh, inventory.nodes):
        asked[name] = (MACHINE_ID, Identity(), *more.get(name, ()))
    return asked
