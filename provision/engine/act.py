"""One step: expand again if need be, act system by system, read back, and say how it ended."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from provision.engine.expand import ConflictError
from provision.engine.journal import shown
from provision.engine.model import PlannedChange
from provision.engine.plan import Difference, Work, difference, is_birth, owed
from provision.engine.run import Ending, Run, failed
from provision.engine.session import AwayError
from provision.resources.contracts import (
    Action,
    ApiCall,
    ByHand,
    Change,
    Fix,
    Impossible,
    Key,
    Resource,
    Result,
    Settles,
    Snapshot,
    Verdict,
    ask,
)
from provision.values.diagnostics import Diagnostic, Severity
from provision.values.effects import Effect, EffectClass
from provision.values.errors import ProvisionError
from provision.values.events import ChangeMade, EffectDone
from provision.values.outcomes import Outcome

VOIDING = frozenset({EffectClass.POWER_CYCLE, EffectClass.REPLACE, EffectClass.DELETE})
"""Effects after which a subject's systems are not what they were."""
FIRST_POLL = 0.5
LAST_POLL = 5.0
BY_HAND_PATIENCE = 60.0
"""Seconds for which a change that a person says is made is looked for."""


@dataclass(slots=True)
class _Deeds:
    """What a step has done so far."""

    differences: dict[Key, Difference] = field(default_factory=dict)
    effects: list[PlannedChange] = field(default_factory=list)
    systems: dict[str, None] = field(default_factory=dict)
    withheld: dict[Effect, None] = field(default_factory=dict)
    deferred: dict[Effect, None] = field(default_factory=dict)
    unknown: dict[Key, Result] = field(default_factory=dict)
    by_hand: dict[Key, Difference] = field(default_factory=dict)
    voided: dict[str, None] = field(default_factory=dict)
    waits: str = ""
    problem: Diagnostic | None = None

    @property
    def changed(self) -> tuple[PlannedChange, ...]:
        return (*(each.planned() for each in self.differences.values()), *self.effects)


def execute(run: Run, work: Work) -> Ending:
    """Bring one step about and return how it ended; errors of systems and roles are endings, too."""
    try:
        if (
            work.step.gate
            and (work.plan.changes or work.plan.late)
            and run.question(work.step.gate) is not True
        ):
            return _waiting(work, Diagnostic("GATE_CLOSED", f"waits for a person: {work.step.gate}"))
        if is_stale(run, work):
            refresh(run, work)
        if work.plan.problem is not None and not work.resources:
            return failed(work.plan.problem)
        deeds = _Deeds()
        for system, batch in _batches(run, work):
            _act(run, work, system, batch, deeds)
            while deeds.by_hand and _done_by_hand(run, work, deeds):
                _act(run, work, system, batch, deeds)
            if deeds.problem or deeds.waits:
                break
        run.touched[work.step.id] = set(deeds.systems)
        return settle(run, work, deeds)
    except AwayError as error:
        return unreached(error)
    except _FailedError as error:
        return failed(error.diagnostic)
    except _SilentError as error:
        return unreached(error.error)
    except ProvisionError as error:
        return Ending(
            Outcome.FAILED,
            error.diagnostics[0].summary,
            error.diagnostics,
            stops=True,
            exit_code=error.exit_code,
        )


class _FailedError(Exception):
    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.code)
        self.diagnostic = diagnostic


class _SilentError(Exception):
    def __init__(self, error: ProvisionError) -> None:
        super().__init__(str(error))
        self.error = error


def unreached(error: ProvisionError) -> Ending:
    """Return the ending of a step whose system gives no answers."""
    if isinstance(error, AwayError):
        return Ending(Outcome.UNREACHED, error.away.reason, stops=True, excused=error.away.excused)
    return Ending(
        Outcome.UNREACHED,
        error.diagnostics[0].summary,
        error.diagnostics,
        stops=True,
        exit_code=error.exit_code,
    )


def _waiting(work: Work, diagnostic: Diagnostic) -> Ending:
    del work
    return Ending(Outcome.WAITING, diagnostic.summary, (diagnostic,), stops=True)


# ---------------------------------------------------------------- expansion when reached


def is_stale(run: Run, work: Work) -> bool:
    """Tell whether a step must be expanded again: it was late, or a system of it has booted or come into being."""
    if work.role is None:
        return False
    return bool(work.plan.late or work.plan.unreached) or run.session.epochs(work.systems) != work.epochs


def refresh(run: Run, work: Work) -> None:
    """Expand a step from present answers.

    Raises:
        AwayError: a system is not there (yet).
        ProvisionError: a system does not answer, or the role cannot tell.
    """
    step = work.step
    own = {name: run.session.subject_of(name) == step.subject.name for name in work.systems}
    for name, queries in work.questions.items():
        held = run.session.snapshot(name)
        wanted = set(queries)
        if held is None:  # just reached: ask for all that the subject's later steps look at, too
            wanted |= _looks_at(run, [work, *run.later(work)], name)
            if own.get(name):
                wanted |= run.remembered.get(name, frozenset())
        run.session.claim(name, queries)
        try:
            run.session.ask(name, wanted, run.cancel)
        except ProvisionError as error:
            raise _SilentError(error) from error
    resources = run.expander.resources(work)
    with run.lock:
        try:
            desired = run.planned.desired
            work.resources = desired.states(desired.unite(step.id, resources))
        except ConflictError as error:
            raise _FailedError(error.diagnostics[0]) from error
    for system, batch in _by_system(work.resources).items():
        wanted = {query for each in batch for query in each.queries()}
        run.session.claim(system, wanted)
        run.session.ask(system, wanted, run.cancel)
    for found in run.world.rules(run.world.inventory, run.session.snapshots(), work.resources):
        if found.severity is Severity.ERROR:
            raise _FailedError(found)
    work.epochs = run.session.epochs(work.systems)


def _looks_at(run: Run, works: Sequence[Work], system: str) -> set[Any]:
    """Return all questions of some steps to one system, and those that endpoints of their subject follow from."""
    found: set[Any] = set()
    for work in works:
        found.update(work.questions.get(system, ()))
        for resource in work.resources:
            if resource.key.system == system:
                found.update(resource.queries())
    for name in run.session.of_subject(works[0].step.subject.name):
        found.update(run.session.systems[name].spec.questions.get(system, ()))
    return found


# ---------------------------------------------------------------- acting


def _by_system(resources: Sequence[Resource]) -> dict[str, list[Resource]]:
    found: dict[str, list[Resource]] = {}
    for each in resources:
        found.setdefault(each.key.system, []).append(each)
    return found


def _batches(run: Run, work: Work) -> Iterator[tuple[str, list[Resource]]]:
    """Yield consecutive resources of one system, and systems on which only effects are owed."""
    with run.lock:
        desired = run.planned.desired  # later steps may have added to what this one wants
        if work.role is not None:
            work.resources = desired.states(each.key for each in work.resources)
    seen = set()
    for system, batch in groupby(work.resources, key=lambda each: each.key.system):
        seen.add(system)
        yield system, list(batch)
    for change in work.plan.changes:
        if change.pending and change.key.system not in seen:
            seen.add(change.key.system)
            yield change.key.system, []


def _act(run: Run, work: Work, system: str, batch: Sequence[Resource], deeds: _Deeds) -> None:
    handle = run.session.systems[system]
    with handle.lock:
        queries = {query for each in batch for query in each.queries()}
        seen = run.session.ask(system, queries, run.cancel)
        todo = _todo(run, system, batch, seen, deeds)
        pending = _pending(run, work, system, seen)
        effects = _effects(run, system, todo, pending, deeds)
        actions = [
            Action(each.resource.key, str(each.resource.key), each.remedy, each.effects)
            for each in todo
            if isinstance(each.remedy, Fix | ApiCall)
        ]
        if not actions and not effects:
            return
        _send(run, work, system, todo, actions, effects, deeds)
    # Without the lock: whoever holds a subject's system may be asking this one.
    for subject in deeds.voided:
        run.session.void(subject)
    deeds.voided.clear()


def _pending(run: Run, work: Work, system: str, seen: Snapshot) -> list[Effect]:
    """Return what a system owes and this step repays: nothing of another subject's, nothing held back already."""
    planned = any(each.pending and each.key.system == system for each in work.plan.changes)
    if not planned and run.session.subject_of(system) != work.step.subject.name:
        return []
    return [effect for effect in owed(seen) if (system, effect) not in run.held_back]


def _todo(
    run: Run, system: str, batch: Sequence[Resource], seen: Snapshot, deeds: _Deeds
) -> list[Difference]:
    """Return what differs and may be mended now; what may not stops the step there."""
    todo = []
    for resource in batch:
        found = difference(resource, seen)
        if found is None:
            continue
        if isinstance(found.remedy, ByHand):
            deeds.by_hand[resource.key] = found
            deeds.waits = found.remedy.lines[0] if found.remedy.lines else str(resource.key)
            break
        if isinstance(found.remedy, Impossible):
            if _within(found.changes):  # it may come by itself: waited for, and then told
                deeds.differences[resource.key] = found
                continue
            deeds.problem = found.remedy.diagnostic
            break
        refused = [effect for effect in found.risks if not run.consent(system, effect)]
        if refused:
            deeds.withheld.update(dict.fromkeys(refused))
            deeds.waits = f"{resource.key} waits for consent: {', '.join(map(str, refused))}"
            break
        todo.append(found)
    return todo


def _effects(
    run: Run, system: str, todo: Sequence[Difference], pending: Sequence[Effect], deeds: _Deeds
) -> list[Effect]:
    """Return the effects to be done now, ranked; note the reboots that are owed and what lacks consent."""
    now = []
    consents = run.planned.consents
    wanted = dict.fromkeys((*pending, *(effect for each in todo for effect in each.effects)))
    for effect in sorted(wanted, key=lambda each: (each.cls.rank, each.target)):
        if not run.consent(system, effect):
            deeds.withheld[effect] = None
            run.held_back.add((system, effect))
        elif effect.cls.is_reboot:
            deeds.deferred[effect] = None
            run.held_back.add((system, effect))
            with run.lock:
                run.owed.setdefault(consents.hit(system, effect), {})[system, effect] = None
        else:
            now.append(effect)
        if effect in pending and effect not in deeds.withheld:
            deeds.effects.append(
                PlannedChange(Key(system, "pending", str(effect)), (), (effect,), pending=True)
            )
    return now


def _send(
    run: Run,
    work: Work,
    system: str,
    todo: Sequence[Difference],
    actions: Sequence[Action],
    effects: Sequence[Effect],
    deeds: _Deeds,
) -> None:
    step = work.step.id
    handle = run.session.systems[system]
    driver = run.session.driver(system, run.cancel)
    run.journal.intent(run.id, step, system, [*(each.label for each in actions), *map(str, effects)])
    deeds.systems[system] = None
    handle.acted += 1
    try:
        results = driver.act(run.id, actions, effects, lambda line: run.progress(step, line), run.cancel)
    finally:
        run.session.forget(
            system, [query for each in todo for query in each.resource.queries()], unclaimed=True
        )
    for found, result in zip(todo, results, strict=False):
        _note(run, work, found, result, deeds)
    for effect, result in zip(effects, results[len(actions) :], strict=False):
        run.journal.effect(run.id, system, str(effect), str(result.verdict), result.seconds)
        if result.verdict is Verdict.NOT_BEGUN:
            continue
        run.emit(
            EffectDone(
                run=run.id,
                system=system,
                effect=str(effect),
                verdict=str(result.verdict),
                seconds=result.seconds,
            )
        )
        if result.verdict is not Verdict.DONE:
            deeds.problem = deeds.problem or _trouble(result, f"{system}: {effect}", step.subject)
    hits = {
        run.planned.consents.hit(system, effect)
        for effect in (*effects, *(risk for each in todo for risk in each.risks))
        if effect.cls in VOIDING and effect.target
    }
    deeds.voided.update(dict.fromkeys(hit for hit in hits if hit != run.session.subject_of(system)))


def _note(run: Run, work: Work, found: Difference, result: Result, deeds: _Deeds) -> None:
    if result.verdict is Verdict.NOT_BEGUN:
        return
    step = work.step.id
    key = found.resource.key
    deeds.differences[key] = found
    run.journal.change(
        run.id, step, str(key), found.changes, str(result.verdict), result.seconds, result.output
    )
    mask = run.journal.mask
    run.emit(
        ChangeMade(
            run=run.id,
            subject=step.subject,
            role=step.role,
            key=str(key),
            verdict=str(result.verdict),
            changes=tuple(
                (op, path, mask(old), mask(new)) for op, path, old, new in map(shown, found.changes)
            ),
            seconds=result.seconds,
        )
    )
    if result.verdict is Verdict.UNKNOWN:
        deeds.unknown[key] = result
    elif result.verdict is Verdict.FAILED:
        deeds.problem = deeds.problem or _trouble(result, str(key), step.subject, found.resource)
    elif is_birth(key, found.changes, run.session, run.planned.consents.subjects):
        run.planned.consents.born.add(key.name)


def _trouble(result: Result, what: str, subject: str, resource: Resource | None = None) -> Diagnostic:
    return result.diagnostic or Diagnostic(
        "FIX_FAILED",
        f"{what} failed",
        subject=subject,
        evidence=result.output[-20:],
        source=resource.source if resource is not None else None,
    )


# ---------------------------------------------------------------- reading back


def read_back(run: Run, work: Work, systems: Sequence[str], others: Sequence[Work] = ()) -> None:
    """Ask again, once a system, what the step and its subject's later steps look at.

    Args:
        run: the run.
        work: the step.
        systems: which systems.
        others: further steps whose answers are wanted.

    Raises:
        ProvisionError: a system gives no answers.
    """
    works = [work, *others, *run.later(work)]
    for system in systems:
        wanted = _looks_at(run, works, system)
        if run.session.subject_of(system) == work.step.subject.name:
            held = run.session.snapshot(system)
            wanted |= set(held.answers) if held is not None else set()
        run.session.ask(system, wanted, run.cancel, fresh=True)
    run.session.follow(systems)


def settle(run: Run, work: Work, deeds: _Deeds) -> Ending:
    """Read back what a step did and return its ending."""
    changed = deeds.changed
    if deeds.problem is not None and not deeds.unknown:
        return failed(deeds.problem, changed)
    try:
        read_back(run, work, list(deeds.systems))
    except ProvisionError as error:
        if not deeds.unknown:
            raise
        return failed(_cut(work, deeds, error.diagnostics[0].summary), changed)
    left = _left(run, deeds)
    if any(key in left for key in deeds.unknown):
        return failed(_cut(work, deeds, "it was not done"), changed)
    if deeds.problem is not None:
        return failed(deeds.problem, changed)
    if left:
        return failed(_unsettled(work, deeds, left), changed)
    if deeds.waits:
        return _waits(deeds)
    if deeds.withheld:
        return _withheld(deeds, changed)
    outcome = Outcome.CHANGED if changed else Outcome.UNCHANGED
    return Ending(outcome, changed=changed, deferred=bool(deeds.deferred))


def _left(run: Run, deeds: _Deeds) -> dict[Key, tuple[Change, ...]]:
    """Return what still differs and no withheld or deferred effect explains; what takes time is polled."""
    pause = FIRST_POLL
    began = time.monotonic()
    while True:
        left = _unexplained(run, deeds)
        slow = {key: changes for key, changes in left.items() if _within(changes)}
        deadline = max((each.deadline for changes in slow.values() for each in changes), default=0.0)
        spent = time.monotonic() - began
        if spent >= deadline or run.cancel.draining:
            return left
        run.cancel.wait(min(pause, deadline - spent))
        pause = min(pause * 1.5, LAST_POLL)
        for system in dict.fromkeys(key.system for key in slow):
            resources = [deeds.differences[key].resource for key in slow if key.system == system]
            run.session.ask(system, ask(resources), run.cancel, fresh=True)


def _unexplained(run: Run, deeds: _Deeds) -> dict[Key, tuple[Change, ...]]:
    held_back = {*deeds.withheld, *deeds.deferred}
    left = {}
    for key, found in deeds.differences.items():
        seen = run.session.snapshot(key.system)
        changes = found.resource.changes(seen) if seen is not None else ()
        later = all(each.settles is not Settles.NOW for each in changes)
        if changes and not (later and held_back.intersection(found.effects)):
            left[key] = changes
    return left


def _within(changes: Sequence[Change]) -> bool:
    return bool(changes) and all(each.settles is Settles.WITHIN for each in changes)


def _done_by_hand(run: Run, work: Work, deeds: _Deeds) -> bool:
    """Ask the person whether it is done; after a yes it is looked for, for a while, and True means it was seen."""
    key, found = next(iter(deeds.by_hand.items()))
    lines = found.remedy.lines if isinstance(found.remedy, ByHand) else ()
    for line in lines:
        run.progress(work.step.id, line)
    if run.question("\n".join((*lines, "Done?"))) is not True:
        return False
    began = time.monotonic()
    while found.resource.changes(
        run.session.ask(key.system, found.resource.queries(), run.cancel, fresh=True)
    ):
        if time.monotonic() - began > BY_HAND_PATIENCE:
            return False
        run.cancel.wait(LAST_POLL)
    del deeds.by_hand[key]
    deeds.differences[key] = found
    deeds.waits = ""
    return True


def _waits(deeds: _Deeds) -> Ending:
    lines = tuple(
        line
        for each in deeds.by_hand.values()
        if isinstance(each.remedy, ByHand)
        for line in each.remedy.lines
    )
    diagnostic = Diagnostic(
        "BY_HAND" if lines else "CONSENT_MISSING",
        deeds.waits,
        severity=Severity.WARNING,
        evidence=lines,
        remedy=_remedy(deeds),
    )
    deferred = bool(deeds.deferred)
    return Ending(Outcome.WAITING, deeds.waits, (diagnostic,), deeds.changed, stops=True, deferred=deferred)


def _withheld(deeds: _Deeds, changed: tuple[PlannedChange, ...]) -> Ending:
    names = ", ".join(map(str, deeds.withheld))
    summary = f"waits for consent: {names}"
    diagnostic = Diagnostic("CONSENT_MISSING", summary, severity=Severity.WARNING, remedy=_remedy(deeds))
    return Ending(Outcome.WAITING, summary, (diagnostic,), changed, deferred=bool(deeds.deferred))


def _remedy(deeds: _Deeds) -> str:
    if not deeds.withheld:
        return "do it, and run again"
    return "run again with " + " ".join(
        f"--allow {cls}" for cls in dict.fromkeys(e.cls for e in deeds.withheld)
    )


def _cut(work: Work, deeds: _Deeds, found: str) -> Diagnostic:
    key, result = next(iter(deeds.unknown.items()))
    handle = f" ({result.handle})" if result.handle else ""
    return Diagnostic(
        "OUTCOME_UNKNOWN",
        f"{key}: no answer came{handle}; looked up: {found}",
        subject=work.step.subject.name,
        evidence=result.output[-20:],
        remedy="run again: it is looked up first and nothing is repeated blindly",
    )


def _unsettled(work: Work, deeds: _Deeds, wrong: dict[Key, tuple[Change, ...]]) -> Diagnostic:
    for key in wrong:
        remedy = deeds.differences[key].remedy
        if isinstance(remedy, Impossible):
            return remedy.diagnostic
    lines = []
    for key, changes in wrong.items():
        for op, path, old, new in map(shown, changes):
            lines.append(f"{op} {key} {path}: is {old or 'absent'}, should be {new or 'absent'}")
    key = next(iter(wrong))
    return Diagnostic(
        "NOT_AS_DESIRED",
        f"{key} was changed and is still not as desired",
        subject=work.step.subject.name,
        evidence=tuple(lines[:20]),
        source=deeds.differences[key].resource.source,
    )
