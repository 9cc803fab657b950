"""A step that is reached: ask again what it reads, and expand it again from present answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from provision.contracts.resource import Resource, changes_of
from provision.engine.expand import ConflictError
from provision.engine.journal import shown
from provision.engine.readback import queries_of
from provision.engine.run import Run
from provision.engine.step_state import StepState
from provision.values.diagnostics import Severity
from provision.values.errors import ProvisionError


def is_stale(run: Run, state: StepState) -> bool:
    """Tell whether a step must be expanded again: it was late, or a system of it has booted or begun."""
    if state.role is None:
        return False
    return bool(state.plan.late or state.plan.unreached) or run.session.epochs(state.systems) != state.epochs


def refresh(run: Run, state: StepState) -> ProvisionError | None:
    """Ask again what a step reads, expand it again, and report what it will do now.

    Returns:
        Why a system that its role reads gives no answers, or None.

    Raises:
        ProvisionError: a system that it acts on gives no answers, the role lacks an answer, or a rule
            refuses it.
    """
    try:
        _look_again(run, state)
    except ProvisionError as error:
        return error
    _expand_again(run, state)
    _show(run, state)
    return None


def _look_again(run: Run, state: StepState) -> None:
    """Ask what a step's role looks at; a system that was just reached is asked ahead for later steps.

    Raises:
        AwayError: a system is not there (yet).
        ProvisionError: a system does not answer.
    """
    for system, queries in state.questions.items():
        wanted = set(queries)
        if run.session.snapshot(system) is None:
            wanted |= queries_of(run, [state, *run.later(state)], system)
            wanted.update(run.world.evidence.get(system, ()))
            if is_own(run, state, system):
                wanted |= run.remembered.get(system, frozenset())
        run.session.claim(system, queries)
        run.session.ask(system, wanted, run.cancel)


def _expand_again(run: Run, state: StepState) -> None:
    """Expand a step from present answers, and let the rules look at it.

    Raises:
        AwayError: a system that it acts on is not there (yet).
        ProvisionError: such a system does not answer, the role lacks an answer, or a rule refuses it.
    """
    resources = run.expander.resources(state)
    with run.lock:
        try:
            desired = run.planned.desired
            state.resources = desired.states(desired.unite(state.step.id, resources))
        except ConflictError as error:  # found while acting, it is no wrong usage any more
            raise ProvisionError(error.diagnostics) from error
    for system, batch in by_system(state.resources).items():
        wanted = {query for each in batch for query in each.queries()}
        held = run.session.snapshot(system)
        if is_own(run, state, system) and held is not None and held.missing(wanted):
            wanted |= _ahead(run, state, system)
        run.session.claim(system, wanted)
        run.session.ask(system, wanted, run.cancel)
    others = run.subjects - {state.step.subject.name, *map(run.session.subject_of, state.systems)}
    rules, seen = run.world.rules, run.session.snapshots()
    for found in rules(run.world.inventory, seen, state.resources, destroying=run.planned.destroying):
        if found.severity is Severity.ERROR and found.subject not in others:
            raise ProvisionError(found)
    state.epochs = run.session.epochs(state.systems)


def is_own(run: Run, state: StepState, system: str) -> bool:
    """Whether a system belongs to the subject of a step."""
    return run.session.subject_of(system) == state.step.subject.name


def _ahead(run: Run, state: StepState, system: str) -> set[Any]:
    """Return what later steps of the subject will ask of a system, as far as that can be told now."""
    found: set[Any] = set()
    for later in run.later(state):
        if later.role is None or any(run.session.snapshot(name) is None for name in later.questions):
            continue
        try:
            resources = run.expander.resources(later)
        except ProvisionError:
            continue  # it says so itself when it is reached
        found.update(query for each in resources if each.key.system == system for query in each.queries())
    return found


def _show(run: Run, state: StepState) -> None:
    """Tell what a step that could not be planned will do, now that it can be told."""
    for resource in state.resources:
        seen = run.session.snapshot(resource.key.system)
        for change in changes_of(resource, seen) if seen is not None else ():
            op, path, _, _ = shown(change)
            run.progress(state.step.id, f"planned: {op} {resource.key} {path}")


def by_system(resources: Sequence[Resource]) -> dict[str, list[Resource]]:
    """Return resources by system, in order."""
    grouped: dict[str, list[Resource]] = {}
    for resource in resources:
        grouped.setdefault(resource.key.system, []).append(resource)
    return grouped
