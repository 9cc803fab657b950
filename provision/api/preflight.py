"""Checks before anything is touched: rules with stable codes over inventory, answers and desired states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from provision.contracts.resource import Resource
from provision.contracts.rule import Rule, UnknownYet
from provision.contracts.snapshot import Snapshot
from provision.hosts import names
from provision.hosts import preflight as controller
from provision.hosts.facts import MACHINE_ID
from provision.inventory import Inventory
from provision.proxmox.preflight.site import Site
from provision.values.diagnostics import Diagnostic, Severity


def rules(*, hypervisors: bool = True) -> tuple[Rule, ...]:
    """Return all rules in the order of the reference, or those of a site without hypervisors."""
    if not hypervisors:
        return controller.RULES
    from provision.proxmox.preflight.rules import RULES  # noqa: PLC0415 - slow, and bare metal needs none

    return (*RULES, *controller.RULES)


def check(
    inventory: Inventory,
    snapshots: Mapping[str, Snapshot],
    resources: Sequence[Resource],
    *,
    destroying: bool = False,
) -> list[Diagnostic]:
    """Run the rules and return what they found; one that lacks evidence answers a note.

    Args:
        inventory: what was declared.
        snapshots: answers by system; those of silent systems are missing.
        resources: desired states of the run, or of a step that was reached.
        destroying: all of it is removed; rules about what is made need not hold for that.
    """
    site = Site(inventory, snapshots, resources)
    found: list[Diagnostic] = []
    for rule in rules(hypervisors=bool(inventory.hypervisors)):
        if destroying and not rule.removal:
            continue
        for each in rule.check(site):
            if isinstance(each, UnknownYet):
                summary = f"unknown yet: {each.reason}"
                found.append(Diagnostic(rule.codes[0], summary, each.subject, Severity.NOTE))
            elif rule.severity is not Severity.ERROR and each.severity is Severity.ERROR:
                found.append(replace(each, severity=rule.severity))
            else:
                found.append(each)
    return list(dict.fromkeys(found))


def evidence(inventory: Inventory) -> dict[str, tuple[Any, ...]]:
    """Return the questions that rules look at beyond those of roles, by system."""
    found: dict[str, tuple[Any, ...]] = {}
    if inventory.hypervisors:
        from provision.proxmox.preflight import rules as hypervisors  # noqa: PLC0415 - slow, and bare metal needs none

        found |= hypervisors.evidence(inventory)
    for subject in (*inventory.hypervisors, *inventory.nodes):
        system = names.ssh(subject)
        found[system] = (MACHINE_ID, *found.get(system, ()))
    return found


__all__ = ["Rule", "Site", "UnknownYet", "check", "evidence", "rules"]
