"""A step that is reached: ask again what it reads, and expand it again from present answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from provision.contracts.resource import changes_of
from provision.contracts.role import NotYet
from provision.engine.journal import shown
from provision.engine.questions import Questions
from provision.engine.readback import queries_of
from provision.engine.run import Run
from provision.engine.step_state import StepState
from provision.engine.steps import ConflictError
from provision.values.diagnostics import Severity
from provision.values.errors import ProvisionError


def is_stale(run: Run, state: StepState) -> bool:
    """Whether a step was not expanded yet, or answers that its role read are gone or have other values."""
    if state.role is None:
        return False
    return bool(state.plan.late or state.plan.unreached) or has_moved(run, state, state.questions)


def is_outdated(run: Run, state: StepState) -> bool:
    """Whether an answer that a step was compared from is gone or has another value."""
    if all(run.session.snapshot(system) is state.basis.get(system) for system in state.systems):
        return False  # the usual case, and cheap: nothing was asked or dropped since
    return has_moved(run, state, state.queries())


def has_moved(run: Run, state: StepState, queries: Mapping[str, Iterable[Any]]) -> bool:
    """Whether an answer to one of some questions is gone, or is another one than a step was expanded from.

    What always moves (an uptime) is a field of the answer that takes no part in its comparison.
    """
    for system, asked in queries.items():
        before, now = state.basis.get(system), run.session.snapshot(system)
        if now is before is None and system in state.optional:
            continue
        if now is None or before is None:
            return True
        if now is not before and any(
            query not in now or query not in before or now[query] != before[query] for query in asked
        ):
            return True
    return False


def refresh(run: Run, state: StepState) -> ProvisionError | None:
    """Ask for the answers that were dropped; expand the step again if they differ from those it came from.

    Returns:
        Why a system that its role reads gives no answers, or None.

    Raises:
        AwayError: a system that it acts on is not there (yet).
        ProvisionError: such a system gives no answers, the role lacks an answer, or a rule refuses it.
    """
    try:
        _ask_again(run, state)
    except ProvisionError as error:
        return error
    if not is_stale(run, state):
        _ask_for_resources(run, state)
        return None
    unknown_before = bool(state.plan.late or state.plan.unreached)
    former = state.resources
    _expand_again(run, state)
    _ask_for_resources(run, state)
    if unknown_before or state.resources != former:
        _check_rules(run, state)
        _report_planned(run, state)
    state.basis = run.session.basis(state.systems)
    return None


def _ask_again(run: Run, state: StepState) -> None:
    """Ask what a step's role reads; a system that was just reached is asked ahead for later steps.

    Raises:
        AwayError: a system is not there (yet).
        ProvisionError: a system does not answer.
    """
    for system, queries in state.questions.items():
        needed = set(queries)
        if run.session.snapshot(system) is None:
            if system in state.optional and run.session.error_of([system]) is not None:
                continue  # it was tried already: every step behind it would wait for it again
            needed |= queries_of(run, [state, *run.later(state)], system)
            needed.update(run.environment.evidence.get(system, ()))
            if is_own(run, state, system):
                needed |= run.remembered.get(system, frozenset())
        run.session.claim(system, queries)
        try:
            run.session.ask(system, needed, run.cancel)
        except ProvisionError:
            if system not in state.optional:
                raise
    _ask_homes(run, state)


def _ask_homes(run: Run, state: StepState) -> None:
    """Ask for generated values where a home was made or reached after the plan."""
    if state.role is None or state.role.generates is None:
        return
    names = {value.name for value in state.role.generates(run.environment.inventory)}
    for system, queries in run.expander.generated.questions(names).items():
        run.session.claim(system, queries)
        run.session.ask_known(system, queries, run.cancel)


def _expand_again(run: Run, state: StepState) -> None:
    """Expand a step from present answers.

    Keys that it gives up while other steps want them stay with it for this run: these steps may have ended,
    and what they want alone is compared again.

    Raises:
        NotYet: a system still has no answer that the role needs.
        ProvisionError: its wants contradict those of another step, or the role has another problem.
    """
    try:
        resources = run.expander.resources(state)
    except NotYet as missing:  # the answer at hand may be older than what brings it
        run.session.ask(missing.system, [missing.query], run.cancel, fresh=True)
        resources = run.expander.resources(state)
    with run.lock:
        desired = run.planned.desired
        if state.step.separate:
            state.resources = desired.unwanted(resources)
            return
        try:
            keys = desired.unite(state.step.id, resources)
            former = {resource.key for resource in state.resources}
            shared = desired.release(state.step.id, sorted(former.difference(keys)))
            state.resources = desired.states((*keys, *shared))
        except ConflictError as error:  # while acting, it is not wrong usage any more
            raise ProvisionError(error.diagnostics) from error


def _ask_for_resources(run: Run, state: StepState) -> None:
    """Ask what a step's resources read, and ahead for later steps of the subject."""
    for system, needed in Questions().add_resources(state.resources).items():
        held = run.session.snapshot(system)
        if is_own(run, state, system) and held is not None and held.missing(needed):
            needed.update(_queries_ahead(run, state, system))
        run.session.claim(system, needed)
        run.session.ask(system, needed, run.cancel)


def _check_rules(run: Run, state: StepState) -> None:
    """Let the preflight rules look at a step that the plan did not show.

    Raises:
        ProvisionError: a rule refuses it.
    """
    others = run.subjects - {state.step.subject.name, *map(run.session.subject_of, state.systems)}
    of_resources = run.checked(state.resources, frozenset())
    for diagnostic in (*of_resources, *run.findings(sorted(state.systems))):
        if diagnostic.severity is Severity.ERROR and diagnostic.subject not in others:
            raise ProvisionError(diagnostic)


def _queries_ahead(run: Run, state: StepState, system: str) -> set[Any]:
    """Return what later steps of the subject will ask of a system, as far as their roles can say now."""
    queries: set[Any] = set()
    for later in run.later(state):
        if later.role is None or any(run.session.snapshot(name) is None for name in later.required):
            continue
        try:
            resources = run.expander.resources(later)
        except ProvisionError:
            continue  # it reports this itself when it is reached
        queries |= Questions().add_resources(resources).get(system, set())
    return queries


def _report_planned(run: Run, state: StepState) -> None:
    """Report what a step that could not be planned will do."""
    for resource in state.resources:
        snapshot = run.session.ask_known(resource.key.system, resource.queries(), run.cancel)
        for change in changes_of(resource, snapshot) if snapshot is not None else ():
            op, path, _, _ = shown(change)
            run.progress(state.step.id, f"planned: {op} {resource.key} {path}")


def is_own(run: Run, state: StepState, system: str) -> bool:
    """Whether a system belongs to the subject of a step."""
    return run.session.subject_of(system) == state.step.subject.name
