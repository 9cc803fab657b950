"""After a step has acted: reads back, waits for what takes time, and decides how it ended."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from provision.contracts.change import Change, Key, Settles
from provision.contracts.driver import Result
from provision.contracts.remedy import ByHand, Impossible
from provision.contracts.resource import AnswerId, ask, changes_of, remedy_of
from provision.engine.difference import settles_without_action
from provision.engine.journal import shown
from provision.engine.model import PlannedChange
from provision.engine.questions import Questions
from provision.engine.run import Run
from provision.engine.session import AwayError
from provision.engine.step_state import StepResult, StepState, failed
from provision.values.diagnostics import Diagnostic, Severity
from provision.values.errors import ProvisionError
from provision.values.outcomes import ExitCode, Outcome

FIRST_POLL = 0.5
LAST_POLL = 5.0
LOOKED_UP = "run the command again: it reads the present state first, and waits for a task that still runs"


def unreached(error: ProvisionError) -> StepResult:
    """Return the result of a step whose system gives no answers."""
    if isinstance(error, AwayError):
        return StepResult(Outcome.UNREACHED, error.away.reason, excused=error.away.excused)
    summary = error.diagnostics[0].summary
    return StepResult(Outcome.UNREACHED, summary, error.diagnostics, exit_code=error.exit_code)


def queries_of(run: Run, states: Sequence[StepState], system: str) -> set[Any]:
    """Return all questions of some steps to one system, with those that their endpoints follow from."""
    own = run.session.of_subject(states[0].step.subject.name)
    ways = (run.session.systems[name].spec.questions for name in own)
    return Questions(*(state.queries() for state in states), *ways).get(system, set())


def read_back(run: Run, states: Sequence[StepState], systems: Sequence[str]) -> None:
    """Ask again, once a system, what some steps and later ones of the first one's subject look at.

    Args:
        run: the run.
        states: the steps.
        systems: which systems.

    Raises:
        ProvisionError: a system gives no answers.
    """
    affected = forget_affected(run, states, systems)
    answers: list[AnswerId] = []
    for system in systems:
        queries = queries_of(run, [*states, *run.later(states[0])], system) | affected.get(system, set())
        if run.session.subject_of(system) == states[0].step.subject.name:
            held = run.session.snapshot(system)
            queries |= set(held.answers) if held is not None else set()
        run.session.ask(system, queries, run.cancel, fresh=True)
        answers += [(system, query) for query in queries]
    run.session.follow(answers, run.cancel)


def forget_affected(run: Run, states: Sequence[StepState], kept: Sequence[str] = ()) -> dict[str, set[Any]]:
    """Drop the answers that some steps have altered for others; the caller holds no lock of a system.

    Args:
        run: the run.
        states: the steps.
        kept: systems that are asked again at once.

    Returns:
        The altered answers at hand of the systems that were kept.
    """
    affected: dict[str, set[Any]] = {}
    for system, query in frozenset().union(*(state.affects for state in states)):
        held = run.session.snapshot(system)
        if held is not None and query in held:
            affected.setdefault(system, set()).add(query)
    for system, queries in affected.items():
        if system not in kept:
            run.session.forget(system, queries, run.cancel)
    return {system: queries for system, queries in affected.items() if system in kept}


def finish(run: Run, state: StepState) -> StepResult:
    """Read back what a step did and return its result."""
    changed = state.changed
    if (state.problem is not None or state.cut) and not state.indeterminate:
        forget_affected(run, [state])
        return _broken_off(state, changed)
    try:
        read_back(run, [state], list(state.acted_on))
    except ProvisionError as error:
        if not state.indeterminate:
            raise
        return failed(_cut(state, error.diagnostics[0].summary), changed)
    wrong = _wrong(run, state, _left(run, state))
    if wrong is not None:
        return failed(wrong, changed)
    if state.waits:
        return _waits(state)
    if state.withheld:
        return _withheld(run, state, changed)
    outcome = Outcome.CHANGED if changed else Outcome.UNCHANGED
    return StepResult(outcome, changed=changed, deferred=state.reboots)


def _broken_off(state: StepState, changed: tuple[PlannedChange, ...]) -> StepResult:
    if state.problem is not None:
        return failed(state.problem, changed)
    summary = "interrupted: a part of it was not begun"
    diagnostic = Diagnostic("INTERRUPTED", summary, state.step.subject.name, severity=Severity.WARNING)
    return failed(diagnostic, changed, exit_code=ExitCode.INTERRUPTED)


def _wrong(run: Run, state: StepState, left: dict[Key, tuple[Change, ...]]) -> Diagnostic | None:
    """Return why a step has failed after all, if it has."""
    if any(key in left for key in state.indeterminate):
        return _cut(state, "it was not done")
    if state.problem is not None:
        return state.problem
    if left:
        return _unsettled(run, state, left)
    return _cut(state, "it was done; what comes after it was not begun") if state.cut else None


def _left(run: Run, state: StepState) -> dict[Key, tuple[Change, ...]]:
    """Return what still differs and no withheld or deferred effect explains; what takes time is polled."""
    # What this step did not act on may be older than what other steps did: it is asked again at once.
    pause = FIRST_POLL if state.acted_on else 0.0
    began = time.monotonic()
    polled = False
    while True:
        left = _unexplained(run, state)
        slow = {key: changes for key, changes in left.items() if settles_without_action(changes)}
        deadline = max((change.deadline for changes in slow.values() for change in changes), default=0.0)
        spent = time.monotonic() - began
        if spent >= deadline:
            if polled:  # what came true meanwhile may have altered them after the first look
                forget_affected(run, [state])
            return left
        polled = True
        run.cancel.wait(min(pause, deadline - spent))
        pause = min(max(pause * 1.5, FIRST_POLL), LAST_POLL)
        for system in dict.fromkeys(key.system for key in slow):
            resources = [state.differences[key].resource for key in slow if key.system == system]
            run.session.ask(system, ask(resources), run.cancel, fresh=True)


def _unexplained(run: Run, state: StepState) -> dict[Key, tuple[Change, ...]]:
    held_back = {*state.withheld, *(effect for _, effect in state.deferred)}
    left = {}
    for key, difference in state.differences.items():
        snapshot = run.session.ask_known(key.system, difference.resource.queries(), run.cancel)
        changes = changes_of(difference.resource, snapshot) if snapshot is not None else ()
        later = all(change.settles is not Settles.NOW for change in changes)
        if changes and not (later and held_back.intersection(difference.effects)):
            left[key] = changes
    return left


def confirm_by_hand(run: Run, state: StepState) -> bool:
    """Ask the person whether it is done; after a yes it is read back once, and the step goes on either way.

    Some things can only be proven later, by what does not exist yet: what a person says counts for this run,
    and what is not so is in the next plan again.
    """
    key, difference = next(iter(state.by_hand.items()))
    lines = difference.remedy.lines if isinstance(difference.remedy, ByHand) else ()
    for line in lines:
        run.progress(state.step.id, line)
    if run.question("\n".join((*lines, "Done?"))) is not True:
        return False
    snapshot = run.session.ask(key.system, difference.resource.queries(), run.cancel, fresh=True)
    if changes_of(difference.resource, snapshot):
        run.progress(state.step.id, f"{key}: not visible yet; proceeding on your confirmation")
    del state.by_hand[key]
    state.confirmed[key] = difference
    state.waits = ""
    return True


def _waits(state: StepState) -> StepResult:
    lines = tuple(
        line
        for difference in state.by_hand.values()
        if isinstance(difference.remedy, ByHand)
        for line in difference.remedy.lines
    )
    diagnostic = Diagnostic(
        "BY_HAND" if lines else "CONSENT_MISSING",
        state.waits,
        severity=Severity.WARNING,
        evidence=lines,
        remedy=_remedy(state),
    )
    return StepResult(Outcome.WAITING, state.waits, (diagnostic,), state.changed, deferred=state.reboots)


def _withheld(run: Run, state: StepState, changed: tuple[PlannedChange, ...]) -> StepResult:
    home = run.planned.home
    summary = f"waits for consent: {', '.join(map(str, state.withheld))}"
    diagnostic = Diagnostic("CONSENT_MISSING", summary, severity=Severity.WARNING, remedy=_remedy(state))
    reboots = (subject for effect, subject in state.withheld.items() if effect.cls.reboots)
    diagnostic = next((home[subject] for subject in reboots if subject in home), diagnostic)
    return StepResult(
        Outcome.WAITING,
        diagnostic.summary,
        (diagnostic,),
        changed,
        holds_none_back=True,
        deferred=state.reboots,
    )


def _remedy(state: StepState) -> str:
    if not state.withheld:
        return "do it, and run again"
    classes = dict.fromkeys(effect.cls for effect in state.withheld)
    return f"run again with {' '.join(f'--allow {cls}' for cls in classes)}"


def _cut(state: StepState, current: str) -> Diagnostic:
    (key, result), *_ = state.indeterminate.items()
    handle = f" ({result.handle})" if result.handle else ""
    return _outcome_unknown(state, f"{key}: no answer came{handle}; looked up: {current}", [result])


def left_behind(state: StepState) -> Diagnostic:
    """Return what a run that leaves cannot look up any more, named by its UPID or process group."""
    named = ", ".join(
        f"{key}{f' ({result.handle})' if result.handle else ''}"
        for key, result in state.indeterminate.items()
    )
    return _outcome_unknown(state, f"interrupted: may still go on: {named}", state.indeterminate.values())


def _outcome_unknown(state: StepState, summary: str, results: Iterable[Result]) -> Diagnostic:
    lines = tuple(line for result in results for line in result.output[-20:])
    subject = state.step.subject.name
    return Diagnostic("OUTCOME_UNKNOWN", summary, subject, evidence=lines, remedy=LOOKED_UP)


def _unsettled(run: Run, state: StepState, wrong: dict[Key, tuple[Change, ...]]) -> Diagnostic:
    for key in wrong:
        resource = state.differences[key].resource
        snapshot = run.session.snapshot(key.system)
        remedy = state.differences[key].remedy
        if snapshot is not None and not snapshot.missing(resource.queries()):
            remedy = remedy_of(resource, snapshot)  # by what is there now
        if isinstance(remedy, Impossible):
            return remedy.diagnostic
    key = next(iter(wrong))
    summary = f"{key} was changed and is still not as desired"
    diagnostic = not_as_desired(summary, state.step.subject.name, wrong)
    return replace(diagnostic, source=state.differences[key].resource.source)


def not_as_desired(summary: str, subject: str, left: Mapping[Key, Sequence[Change]]) -> Diagnostic:
    """Return the problem of what still differs, by key."""
    lines = [
        f"{op} {key} {path}: is {old or 'absent'}, should be {new or 'absent'}"
        for key, changes in left.items()
        for op, path, old, new in map(shown, changes)
    ]
    return Diagnostic("NOT_AS_DESIRED", summary, subject, evidence=tuple(lines[:20]))
