"""One step: expand again if need be, act system by system, read back, and say how it ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from provision.contracts.driver import Action, Result, Verdict
from provision.contracts.effect import Effect
from provision.contracts.remedy import ApiCall, ByHand, Fix, Impossible
from provision.contracts.resource import Resource
from provision.contracts.snapshot import Snapshot
from provision.engine.expand import ConflictError
from provision.engine.journal import shown
from provision.engine.retry import retrying
from provision.engine.run import Ending, Run, failed
from provision.engine.session import AwayError
from provision.engine.settle import Deeds, done_by_hand, left_behind, looks_at, settle, unreached
from provision.engine.work import Difference, Work, comes_by_itself, debt, difference, owed
from provision.values.cancel import Interrupted
from provision.values.diagnostics import Diagnostic, Severity
from provision.values.errors import ProvisionError
from provision.values.events import ChangeMade, EffectDone
from provision.values.outcomes import ExitCode, Outcome


def execute(run: Run, work: Work) -> Ending:
    """Bring one step about and return how it ended; errors of systems and roles are endings, too."""
    deeds = Deeds()
    try:
        ending = _brought_about(run, work, deeds)
    except AwayError as error:
        ending = unreached(error)
    except Interrupted:
        if not deeds.unknown:
            raise
        ending = failed(left_behind(work, deeds), exit_code=ExitCode.INTERRUPTED)
    except ProvisionError as error:
        ending = failed(error.diagnostics[0], exit_code=error.exit_code)
        ending.diagnostics = error.diagnostics
    ending.changed = ending.changed or deeds.changed
    return ending


def _brought_about(run: Run, work: Work, deeds: Deeds) -> Ending:
    step = work.step
    worth_asking = bool(work.plan.changes or work.plan.late)
    if step.gate and worth_asking and run.question(step.gate) is not True:
        return _waiting(Diagnostic("GATE_CLOSED", f"waits for a person: {step.gate}", step.subject.name))
    if is_stale(run, work):
        try:
            _look_again(run, work)
        except ProvisionError as error:
            return unreached(error)
        _expand_again(run, work)
        _show(run, work)
    if work.plan.problem is not None and not work.resources:
        return failed(work.plan.problem)
    for system, batch in _batches(run, work):
        _act(run, work, system, batch, deeds)
        while deeds.by_hand and done_by_hand(run, work, deeds):
            _act(run, work, system, batch, deeds)
        if deeds.problem or deeds.waits or deeds.cut:
            break
    run.touched[step.id] = set(deeds.systems)
    return settle(run, work, deeds)


def _waiting(diagnostic: Diagnostic) -> Ending:
    return Ending(Outcome.WAITING, diagnostic.summary, (diagnostic,), stops=True)


# ---------------------------------------------------------------- expansion when reached


def is_stale(run: Run, work: Work) -> bool:
    """Tell whether a step must be expanded again: it was late, or a system of it has booted or begun."""
    if work.role is None:
        return False
    return bool(work.plan.late or work.plan.unreached) or run.session.epochs(work.systems) != work.epochs


def _look_again(run: Run, work: Work) -> None:
    """Ask what a step's role looks at; a system that was just reached is asked ahead for later steps.

    Raises:
        AwayError: a system is not there (yet).
        ProvisionError: a system does not answer.
    """
    for system, queries in work.questions.items():
        wanted = set(queries)
        if run.session.snapshot(system) is None:
            wanted |= looks_at(run, [work, *run.later(work)], system)
            wanted.update(run.world.evidence.get(system, ()))
            if _is_own(run, work, system):
                wanted |= run.remembered.get(system, frozenset())
        run.session.claim(system, queries)
        run.session.ask(system, wanted, run.cancel)


def _expand_again(run: Run, work: Work) -> None:
    """Expand a step from present answers, and let the rules look at it.

    Raises:
        AwayError: a system that it acts on is not there (yet).
        ProvisionError: such a system does not answer, the role cannot tell, or a rule refuses it.
    """
    resources = run.expander.resources(work)
    with run.lock:
        try:
            desired = run.planned.desired
            work.resources = desired.states(desired.unite(work.step.id, resources))
        except ConflictError as error:  # found while acting, it is no wrong usage any more
            raise ProvisionError(error.diagnostics) from error
    for system, batch in _by_system(work.resources).items():
        wanted = {query for each in batch for query in each.queries()}
        held = run.session.snapshot(system)
        if _is_own(run, work, system) and held is not None and held.missing(wanted):
            wanted |= _ahead(run, work, system)
        run.session.claim(system, wanted)
        run.session.ask(system, wanted, run.cancel)
    others = run.subjects - {work.step.subject.name, *map(run.session.subject_of, work.systems)}
    rules, seen = run.world.rules, run.session.snapshots()
    for found in rules(run.world.inventory, seen, work.resources, destroying=run.planned.destroying):
        if found.severity is Severity.ERROR and found.subject not in others:
            raise ProvisionError(found)
    work.epochs = run.session.epochs(work.systems)


def _is_own(run: Run, work: Work, system: str) -> bool:
    return run.session.subject_of(system) == work.step.subject.name


def _ahead(run: Run, work: Work, system: str) -> set[Any]:
    """Return what later steps of the subject will ask of a system, as far as that can be told now."""
    found: set[Any] = set()
    for later in run.later(work):
        if later.role is None or any(run.session.snapshot(name) is None for name in later.questions):
            continue
        try:
            resources = run.expander.resources(later)
        except ProvisionError:
            continue  # it says so itself when it is reached
        found.update(query for each in resources if each.key.system == system for query in each.queries())
    return found


def _show(run: Run, work: Work) -> None:
    """Tell what a step that could not be planned will do, now that it can be told."""
    for resource in work.resources:
        seen = run.session.snapshot(resource.key.system)
        for change in resource.changes(seen) if seen is not None else ():
            op, path, _, _ = shown(change)
            run.progress(work.step.id, f"planned: {op} {resource.key} {path}")


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


def _act(run: Run, work: Work, system: str, batch: Sequence[Resource], deeds: Deeds) -> None:
    handle = run.session.systems[system]
    with handle.lock:
        queries = {query for each in batch for query in each.queries()}
        seen = run.session.ask(system, queries, run.cancel)
        if any(_is_final(resource, seen) for resource in batch):  # the plan may be hours old by now
            seen = run.session.ask(system, queries, run.cancel, fresh=True)
        if any(difference(resource, seen) for resource in batch) and run.session.guard(
            system, run.id, run.cancel
        ):  # whoever held the lock until now may have changed what was seen
            seen = run.session.ask(system, queries, run.cancel, fresh=True)
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


def _is_final(resource: Resource, seen: Snapshot) -> bool:
    """Tell whether mending a resource removes what nobody can bring back."""
    found = difference(resource, seen)
    return found is not None and any(each.cls.is_final for each in found.risks)


def _pending(run: Run, work: Work, system: str, seen: Snapshot) -> list[Effect]:
    """Return what a system owes and this step repays: nothing of others, nothing held back already."""
    planned = any(each.pending and each.key.system == system for each in work.plan.changes)
    if not planned and not _is_own(run, work, system):
        return []
    open_effects = owed(seen, destroying=run.planned.destroying)
    return [effect for effect in open_effects if (system, effect) not in run.held_back]


def _todo(run: Run, system: str, batch: Sequence[Resource], seen: Snapshot, deeds: Deeds) -> list[Difference]:
    """Return what differs and may be mended now; what may not stops the step there."""
    todo = []
    for resource in batch:
        found = difference(resource, seen)
        if found is None:
            continue
        if resource.key in deeds.said:
            continue
        if isinstance(found.remedy, ByHand):
            deeds.by_hand[resource.key] = found
            deeds.waits = found.remedy.lines[0] if found.remedy.lines else str(resource.key)
            break
        if isinstance(found.remedy, Impossible):
            if comes_by_itself(found.changes):  # it may come by itself: waited for, and then told
                deeds.differences[resource.key] = found
                continue
            deeds.problem = found.remedy.diagnostic
            break
        refused = [effect for effect in found.risks if not run.consent(system, effect)]
        if refused:
            deeds.withheld.update((each, run.planned.consents.hit(system, each)) for each in refused)
            deeds.waits = f"{resource.key} waits for consent: {', '.join(map(str, refused))}"
            break
        todo.append(found)
    return todo


def _effects(
    run: Run, system: str, todo: Sequence[Difference], pending: Sequence[Effect], deeds: Deeds
) -> list[Effect]:
    """Return the effects to be done now, ranked; note the reboots that are owed and what lacks consent."""
    now = []
    consents = run.planned.consents
    wanted = dict.fromkeys((*pending, *(effect for each in todo for effect in each.effects)))
    for effect in sorted(wanted, key=lambda each: (each.cls.rank, each.target)):
        if not run.consent(system, effect):
            deeds.withheld[effect] = consents.hit(system, effect)
            run.held_back.add((system, effect))
        elif effect.cls.reboots:
            deeds.deferred[system, effect] = consents.hit(system, effect)
            run.held_back.add((system, effect))
            with run.lock:
                run.owed.setdefault(consents.hit(system, effect), {})[system, effect] = None
        else:
            now.append(effect)
        if effect in pending and effect not in deeds.withheld:
            deeds.effects.append(debt(system, effect))
    return now


def _send(
    run: Run,
    work: Work,
    system: str,
    todo: Sequence[Difference],
    actions: Sequence[Action],
    effects: Sequence[Effect],
    deeds: Deeds,
) -> None:
    step = work.step.id
    handle = run.session.systems[system]
    driver = run.session.driver(system, run.cancel)
    run.journal.intent(run.id, step, system, [*(each.label for each in actions), *map(str, effects)])
    deeds.systems[system] = None
    handle.acted += 1
    try:
        # An error that a driver raises means that nothing began; what may have begun is a verdict.
        results = retrying(
            lambda: driver.act(run.id, actions, effects, lambda line: run.progress(step, line), run.cancel),
            run.cancel,
        )
    finally:
        run.session.forget(
            system, [query for each in todo for query in each.resource.queries()], unclaimed=True
        )
    for found, result in zip(todo, results, strict=False):
        _note(run, work, found, result, deeds)
    for effect, result in zip(effects, results[len(actions) :], strict=False):
        run.journal.effect(run.id, system, str(effect), str(result.verdict), result.seconds, result.whole)
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
    verdicts = {each.verdict for each in results}
    if Verdict.NOT_BEGUN in verdicts and Verdict.FAILED not in verdicts:
        deeds.cut = True
    hits = {
        run.planned.consents.hit(system, effect)
        for effect in (*effects, *(risk for each in todo for risk in each.risks))
        if effect.cls.voids_target and effect.target
    }
    deeds.voided.update(dict.fromkeys(hit for hit in hits if hit != run.session.subject_of(system)))


def _note(run: Run, work: Work, found: Difference, result: Result, deeds: Deeds) -> None:
    if result.verdict is Verdict.NOT_BEGUN:
        return
    step = work.step.id
    key = found.resource.key
    deeds.differences[key] = found
    run.journal.change(
        run.id, step, str(key), found.changes, str(result.verdict), result.seconds, result.whole
    )
    run.emit(
        ChangeMade(
            run=run.id,
            subject=step.subject,
            role=step.role,
            key=str(key),
            verdict=str(result.verdict),
            changes=tuple(map(shown, found.changes)),
            seconds=result.seconds,
        )
    )
    if result.verdict is Verdict.UNKNOWN:
        deeds.unknown[key] = result
    elif result.verdict is Verdict.FAILED:
        deeds.problem = deeds.problem or _trouble(result, str(key), step.subject, found.resource)
    elif found.births:
        run.planned.consents.born.add(found.births)


def _trouble(result: Result, what: str, subject: str, resource: Resource | None = None) -> Diagnostic:
    return result.diagnostic or Diagnostic(
        "FIX_FAILED",
        f"{what} failed",
        subject=subject,
        evidence=result.output[-20:],
        source=resource.source if resource is not None else None,
    )
