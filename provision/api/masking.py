"""Takes secrets out of all that leaves the library: events, plans, explanations, checks, run reports.

Errors are masked by who shows them, with the redactor that the inventory was loaded with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from provision.contracts.change import Change, Key
from provision.contracts.remedy import ByHand
from provision.engine.model import Plan, PlannedChange, RunReport, StepPlan, StepReport
from provision.report.explained import Explained
from provision.values.diagnostics import Diagnostic
from provision.values.events import Event, Problem
from provision.verify.model import VerifyReport

Mask = Callable[[str], str]
"""Takes secrets out of text."""
_NAMES = frozenset(
    {"run", "inventory", "journal", "verb", "subject", "subjects", "role", "system", "outcome", "verdict"}
)
"""Fields of events that the inventory and the tool itself fill: who reads events compares them."""
_SAID = ("summary", "evidence", "remedy")
"""Fields of a diagnostic that may quote what a system answered."""


def event_masked(event: Event, mask: Mask) -> Event:
    """Return an event as whoever listens may see it."""
    if isinstance(event, Problem):
        said = {name: _value(event.diagnostic[name], mask) for name in _SAID}
        return replace(event, diagnostic={**event.diagnostic, **said})
    names = [field.name for field in fields(event) if field.name not in _NAMES]
    return replace(event, **{name: _value(getattr(event, name), mask) for name in names})


def plan_masked(plan: Plan, mask: Mask) -> Plan:
    """Return a plan as people and files may see it; the engine goes on with its own."""
    return replace(
        plan,
        steps=tuple(_step(step, mask) for step in plan.steps),
        refusals=_diagnostics(plan.refusals, mask),
        warnings=_diagnostics(plan.warnings, mask),
        orphans=tuple(map(mask, plan.orphans)),
    )


def explained_masked(explained: Explained, mask: Mask) -> Explained:
    """Return what is known of a resource as a person may see it."""
    return replace(
        explained,
        key=_key(explained.key, mask),
        answers=tuple((mask(question), mask(answer)) for question, answer in explained.answers),
        unknown=mask(explained.unknown),
        planned=None if explained.planned is None else _planned(explained.planned, mask),
    )


def checks_masked(report: VerifyReport, mask: Mask) -> VerifyReport:
    """Return the results of all checks as people and files may see them."""
    return replace(
        report,
        checks=tuple(replace(check, message=mask(check.message)) for check in report.checks),
        silent=tuple(item.masked(mask) for item in report.silent),
    )


def run_masked(report: RunReport, mask: Mask) -> RunReport:
    """Return how a run ended as a caller may show it; its verification has been masked as it came."""
    return replace(report, steps=tuple(_report(step, mask) for step in report.steps))


def changes_masked(changes: tuple[Change, ...], mask: Mask) -> tuple[Change, ...]:
    """Return differences as people and files may see them."""
    return tuple(_change(change, mask) for change in changes)


def _report(report: StepReport, mask: Mask) -> StepReport:
    return replace(
        report,
        changed=tuple(_planned(item, mask) for item in report.changed),
        diagnostics=_diagnostics(report.diagnostics, mask),
        reason=mask(report.reason),
    )


def _step(step: StepPlan, mask: Mask) -> StepPlan:
    return replace(
        step,
        changes=tuple(_planned(change, mask) for change in step.changes),
        late=mask(step.late),
        unreached=mask(step.unreached),
        problem=None if step.problem is None else step.problem.masked(mask),
    )


def _planned(planned: PlannedChange, mask: Mask) -> PlannedChange:
    by_hand = planned.by_hand
    return PlannedChange(  # no copy of what it may hold besides: a remedy has secrets
        _key(planned.key, mask),
        changes_masked(planned.changes, mask),
        planned.effects,
        planned.risks,
        None if by_hand is None else ByHand(tuple(map(mask, by_hand.lines))),
        planned.pending,
        planned.creates,
        planned.affects,
    )


def _key(key: Key, mask: Mask) -> Key:
    return key._replace(name=mask(key.name))


def _change(change: Change, mask: Mask) -> Change:
    return replace(change, path=mask(change.path), old=_value(change.old, mask), new=_value(change.new, mask))


def _value(value: Any, mask: Mask) -> Any:
    """Return a value without secrets; one that holds none stays what it is."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, bytes):
        return mask(value.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    if isinstance(value, Mapping):
        return {_value(key, mask): _value(item, mask) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_value(item, mask) for item in value)
    if isinstance(value, list | set | frozenset):
        return type(value)(_value(item, mask) for item in value)
    text = str(value)  # renderers show others by their words, too
    masked = mask(text)
    return value if masked == text else masked


def _diagnostics(diagnostics: tuple[Diagnostic, ...], mask: Mask) -> tuple[Diagnostic, ...]:
    return tuple(diagnostic.masked(mask) for diagnostic in diagnostics)
