"""Carries out one step: refresh it if need be, act system by system, read back, and say how it ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from provision.contracts.driver import Action, Result, Verdict
from provision.contracts.effect import Effect
from provision.contracts.remedy import ApiCall, ByHand, Fix, Impossible
from provision.contracts.resource import Resource
from provision.contracts.role import NotYet
from provision.contracts.snapshot import Snapshot
from provision.engine.consent import hook_targets
from provision.engine.difference import (
    Difference,
    difference,
    pending_change,
    pending_effects,
    settles_without_action,
)
from provision.engine.journal import shown
from provision.engine.late import bringer_of, missing_answer
from provision.engine.next_steps import with_next_step
from provision.engine.readback import confirm_by_hand, finish, left_behind, unreached
from provision.engine.refresh import is_own, is_stale, refresh
from provision.engine.run import Run
from provision.engine.session import AwayError
from provision.engine.step_state import StepResult, StepState, failed, inherited_result
from provision.values.cancel import Interrupted
from provision.values.diagnostics import Diagnostic
from provision.values.errors import ProvisionError
from provision.values.events import ChangeMade
from provision.values.outcomes import ExitCode, Outcome


def execute(run: Run, state: StepState) -> StepResult:
    """Carry out one step and return how it ended; errors of systems and roles are results, too."""
    try:
        result = _carry_out(run, state)
    except AwayError as error:
        result = unreached(error)
    except Interrupted:
        if not state.indeterminate:
            raise
        result = failed(left_behind(state), exit_code=ExitCode.INTERRUPTED)
    except NotYet as error:
        result = _result_of_missing(run, state, error)
    except ProvisionError as error:
        result = failed(error.diagnostics[0], exit_code=error.exit_code)
        result = replace(result, diagnostics=tuple(map(with_next_step, error.diagnostics)))
    return replace(result, changed=result.changed or state.changed)


def _result_of_missing(run: Run, state: StepState, error: NotYet) -> StepResult:
    """Return the result of a step whose role lacks an answer: that of the step which may bring it."""
    step = state.step.id
    bringer = bringer_of(run.session, tuple(run.planned.states.values()), step, error.system)
    result = bringer.result if bringer is not None else None
    if bringer is not None and result is not None and not result.ended_well:
        return inherited_result(bringer.step.id, result)
    return failed(missing_answer(run.expander, step, error))


def _carry_out(run: Run, state: StepState) -> StepResult:
    step = state.step
    worth_asking = bool(state.plan.changes or state.plan.late)
    if step.gate and worth_asking and not state.prepared and run.question(step.gate) is not True:
        closed = Diagnostic("GATE_CLOSED", f"waits for a person: {step.gate}", step.subject.name)
        return StepResult(Outcome.WAITING, closed.summary, (closed,))
    if is_stale(run, state):
        silence = refresh(run, state)
        if silence is not None:
            if run.expander.destroying and isinstance(silence, AwayError) and silence.away.absent:
                return StepResult(Outcome.UNCHANGED)  # it needs no removal: the plan says so, too
            return unreached(silence)
    if state.plan.problem is not None and not state.resources:
        return failed(state.plan.problem)
    for system, batch in _batches(run, state):
        _act(run, state, system, batch)
        while state.by_hand and confirm_by_hand(run, state):
            _act(run, state, system, batch)
        if state.unprepared:
            return StepResult(Outcome.WAITING)  # not for long: it is begun again, and this is nobody's result
        if state.problem or state.waits or state.cut:
            break
    return _finish(run, state)


def _finish(run: Run, state: StepState) -> StepResult:
    """Read back, and correct once what the step itself has brought out of its desired state."""
    result = finish(run, state)
    if result.outcome is not Outcome.CHANGED or not (arisen := _arisen(run, state)):
        return result
    for system, changed in groupby(arisen, key=lambda resource: resource.key.system):
        _act(run, state, system, list(changed))
    return finish(run, state)


def _arisen(run: Run, state: StepState) -> list[Resource]:
    """Return what was as desired until this step acted: a package may bring a unit that shall not run."""
    arisen = []
    for resource in state.resources:
        key = resource.key
        if key.system not in state.acted_on or key in state.differences or key in state.confirmed:
            continue
        snapshot = run.session.ask_known(key.system, resource.queries(), run.cancel)
        differing = difference(resource, snapshot) if snapshot is not None else None
        if differing is not None and isinstance(differing.remedy, Fix | ApiCall):
            arisen.append(resource)
    return arisen


# ---------------------------------------------------------------- acting


def _batches(run: Run, state: StepState) -> Iterator[tuple[str, list[Resource]]]:
    """Yield consecutive resources of one system, and systems on which only effects are owed."""
    state.resources = tuple(_current(run, state, state.resources))
    systems = set()
    for system, batch in groupby(state.resources, key=lambda resource: resource.key.system):
        systems.add(system)
        yield system, list(batch)
    for change in state.plan.changes:
        if change.pending and change.key.system not in systems:
            systems.add(change.key.system)
            yield change.key.system, []


def _act(run: Run, state: StepState, system: str, batch: Sequence[Resource]) -> None:
    with run.session.systems[system].lock.held(run.cancel):
        batch = _current(run, state, batch)
        queries = {query for resource in batch for query in resource.queries()}
        snapshot = run.session.ask(system, queries, run.cancel)
        if any(_is_final(resource, snapshot) for resource in batch):  # the plan may be hours old by now
            snapshot = run.session.ask(system, queries, run.cancel, fresh=True)
        if any(difference(resource, snapshot) for resource in batch) and run.session.guard(
            system, run.id, run.cancel
        ):  # whoever held the lock until now may have changed what was seen
            snapshot = run.session.ask(system, queries, run.cancel, fresh=True)
        selected, stop = _select(run, state, system, batch, snapshot)
        pending = _pending(run, state, system, snapshot)
        state.unprepared = _unprepared(run, state, system, selected, pending)
        if state.unprepared:
            return
        if stop is not None:
            _note_stop(run, state, system, *stop)
        effects = _effects(run, state, system, selected, pending)
        actions = [
            Action(item.resource.key, str(item.resource.key), item.remedy, item.effects)
            for item in selected
            if isinstance(item.remedy, Fix | ApiCall)
        ]
        if not actions and not effects:
            return
        _send(run, state, system, selected, actions, effects)
    # Without the lock: whoever holds a subject's system may be asking this one.
    for subject in state.voided:
        run.session.void(subject, run.cancel)
    state.voided.clear()


def _current(run: Run, state: StepState, batch: Sequence[Resource]) -> Sequence[Resource]:
    """Return the desired states of some keys now: steps that share them may have added or given up theirs."""
    if state.role is None or state.step.separate:
        return batch
    with run.lock:
        return run.planned.desired.states(resource.key for resource in batch)


def _is_final(resource: Resource, snapshot: Snapshot) -> bool:
    """Whether fixing a resource removes what nobody can bring back."""
    differing = difference(resource, snapshot)
    return differing is not None and any(effect.cls.is_final for effect in differing.risks)


def _pending(run: Run, state: StepState, system: str, snapshot: Snapshot) -> list[Effect]:
    """Return what a system owes and this step repays: nothing of others, nothing held back already."""
    planned = any(change.pending and change.key.system == system for change in state.plan.changes)
    if not planned and not is_own(run, state, system):
        return []
    open_effects = pending_effects(snapshot, destroying=run.expander.destroying)
    return [effect for effect in open_effects if (system, effect) not in run.held_back]


_Stop = tuple[Difference, list[Effect]]
"""What may not be corrected now, and which of its risks lack consent."""


def _select(
    run: Run, state: StepState, system: str, batch: Sequence[Resource], snapshot: Snapshot
) -> tuple[list[Difference], _Stop | None]:
    """Return what differs and may be corrected now, and where the step stops."""
    selected: list[Difference] = []
    for resource in batch:
        differing = difference(resource, snapshot)
        if differing is None or resource.key in state.confirmed:
            continue
        if isinstance(differing.remedy, Impossible) and settles_without_action(differing.changes):
            state.differences[resource.key] = differing  # waited for, and reported if it does not come
            continue
        refused = [effect for effect in differing.risks if not run.consent(system, effect)]
        if refused or isinstance(differing.remedy, ByHand | Impossible):
            return selected, (differing, refused)
        selected.append(differing)
    return selected, None


def _note_stop(run: Run, state: StepState, system: str, differing: Difference, refused: list[Effect]) -> None:
    key, remedy = differing.resource.key, differing.remedy
    if isinstance(remedy, ByHand):
        state.by_hand[key] = differing
        state.waits = remedy.lines[0] if remedy.lines else str(key)
    elif isinstance(remedy, Impossible):
        state.problem = remedy.diagnostic
    else:
        affected = run.planned.consents.affected_subject
        state.withheld.update((effect, affected(system, effect)) for effect in refused)
        state.waits = f"{key} waits for consent: {', '.join(map(str, refused))}"


def _unprepared(
    run: Run, state: StepState, system: str, selected: Sequence[Difference], pending: Sequence[Effect]
) -> tuple[tuple[str, Effect], ...]:
    """Return the effects that take something away from other systems, which are not prepared for it yet."""
    effects = dict.fromkeys((*(risk for item in selected for risk in item.risks), *pending))
    effects.update(dict.fromkeys(effect for item in selected for effect in item.effects))
    return tuple(
        (system, effect)
        for effect in effects
        if (system, effect) not in state.prepared
        and not effect.cls.reboots  # the scheduler prepares for these, once for all that are owed
        and hook_targets(run.environment, run.planned.consents, [(system, effect)])
        and run.consent(system, effect)
    )


def _effects(
    run: Run, state: StepState, system: str, selected: Sequence[Difference], pending: Sequence[Effect]
) -> list[Effect]:
    """Return the effects to be done now, ranked; note the reboots that are owed and what lacks consent."""
    now = []
    consents = run.planned.consents
    due = dict.fromkeys((*pending, *(effect for each in selected for effect in each.effects)))
    for effect in sorted(due, key=lambda each: (each.cls.rank, each.target)):
        if not run.consent(system, effect):
            state.withheld[effect] = consents.affected_subject(system, effect)
            run.held_back.add((system, effect))
        elif effect.cls.reboots:
            state.deferred[system, effect] = consents.affected_subject(system, effect)
            run.held_back.add((system, effect))
            with run.lock:
                run.owed.setdefault(consents.affected_subject(system, effect), {})[system, effect] = None
        else:
            now.append(effect)
        if effect in pending and effect not in state.withheld:
            state.repaid.append(pending_change(system, effect))
    return now


def _send(
    run: Run,
    state: StepState,
    system: str,
    selected: Sequence[Difference],
    actions: Sequence[Action],
    effects: Sequence[Effect],
) -> None:
    step = state.step.id
    run.session.driver(system, run.cancel)  # nothing is begun on a system that is not there
    run.journal.intent(run.id, step, system, [*(action.label for action in actions), *map(str, effects)])
    state.acted_on[system] = None
    try:
        # An error that a driver raises means that nothing began; what may have begun is a verdict.
        results = run.session.call(
            system,
            lambda driver: driver.act(
                run.id, actions, effects, lambda line: run.progress(step, line), run.cancel
            ),
            run.cancel,
        )
    finally:
        queries = [query for each in selected for query in each.resource.queries()]
        run.session.forget(system, queries, run.cancel, unclaimed=True)
    for differing, result in zip(selected, results, strict=False):
        _record(run, state, differing, result)
    for effect, result in zip(effects, results[len(actions) :], strict=False):
        run.effect_ended(system, effect, result)
        if result.verdict not in {Verdict.DONE, Verdict.NOT_BEGUN}:
            state.problem = state.problem or _trouble(result, f"{system}: {effect}", step.subject)
    verdicts = {each.verdict for each in results}
    if Verdict.NOT_BEGUN in verdicts and Verdict.FAILED not in verdicts:
        state.cut = True
    affected = {
        run.planned.consents.affected_subject(system, effect)
        for effect in (*effects, *(risk for each in selected for risk in each.risks))
        if effect.cls.voids_target and effect.target
    }
    state.voided.update(
        dict.fromkeys(subject for subject in affected if subject != run.session.subject_of(system))
    )


def _record(run: Run, state: StepState, differing: Difference, result: Result) -> None:
    if result.verdict is Verdict.NOT_BEGUN:
        return
    step = state.step.id
    key = differing.resource.key
    state.differences[key] = differing
    run.journal.change(run.id, step, str(key), differing.changes, result)
    run.emit(
        ChangeMade(
            run=run.id,
            subject=step.subject,
            role=step.role,
            key=str(key),
            verdict=str(result.verdict),
            changes=tuple(map(shown, differing.changes)),
            seconds=result.seconds,
        )
    )
    if result.verdict is Verdict.INDETERMINATE:
        state.indeterminate[key] = result
    elif result.verdict is Verdict.FAILED:
        state.failed.add(key)
        state.problem = state.problem or _trouble(result, str(key), step.subject, differing.resource)
    elif differing.creates:
        run.planned.consents.born.add(differing.creates)


def _trouble(result: Result, what: str, subject: str, resource: Resource | None = None) -> Diagnostic:
    return result.diagnostic or Diagnostic(
        "FIX_FAILED",
        f"{what} failed",
        subject=subject,
        evidence=result.output[-20:],
        source=resource.source if resource is not None else None,
    )
