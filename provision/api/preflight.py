"""Checks before anything is touched: rules with stable codes over inventory, answers and desired states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from provision.api.domains import domains
from provision.contracts.rule import Evidence, Rule, UnknownYet
from provision.inventory import Inventory
from provision.values.diagnostics import Diagnostic, Severity
from provision.values.references import load_object


def rules(inventory: Inventory | None = None) -> tuple[Rule, ...]:
    """Return all rules in the order of the reference, or those that an inventory can break."""
    return tuple(
        rule
        for domain in domains()
        if domain.rules and (inventory is None or domain.concerns(inventory))
        for rule in load_object(domain.rules)
    )


def check(looked_at: Evidence) -> list[Diagnostic]:
    """Run the rules and return what they found; one that lacks evidence answers a note."""
    diagnostics: list[Diagnostic] = []
    for rule in rules(looked_at.inventory):
        looks = rule.of_resources or looked_at.systems is None or looked_at.systems
        if (looked_at.destroying and not rule.removal) or not looks:
            continue
        for finding in rule.check(looked_at):
            if isinstance(finding, UnknownYet):
                summary = f"unknown yet: {finding.reason}"
                diagnostics.append(Diagnostic(rule.codes[0], summary, finding.subject, Severity.NOTE))
            elif rule.severity is not Severity.ERROR and finding.severity is Severity.ERROR:
                diagnostics.append(replace(finding, severity=rule.severity))
            else:
                diagnostics.append(finding)
    return list(dict.fromkeys(diagnostics))


def evidence(inventory: Inventory) -> dict[str, tuple[Any, ...]]:
    """Return the questions that rules look at beyond those of roles, by system."""
    queries: dict[str, tuple[Any, ...]] = {}
    for domain in domains():
        if domain.evidence and domain.concerns(inventory):
            for system, asked in load_object(domain.evidence)(inventory).items():
                queries[system] = (*queries.get(system, ()), *asked)
    return queries
