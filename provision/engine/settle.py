"""After a step has acted: read back, wait for what takes time, and say how it ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from provision.contracts.change import Change, Key, Settles
from provision.contracts.driver import Result
from provision.contracts.effect import Effect
from provision.contracts.remedy import ByHand, Impossible
from provision.contracts.resource import ask
from provision.engine.journal import shown
from provision.engine.model import PlannedChange
from provision.engine.run import Ending, Run, failed
from provision.engine.session import AwayError
from provision.engine.work import Difference, Work, comes_by_itself
from provision.values.diagnostics import Diagnostic, Severity
from provision.values.errors import ProvisionError
from provision.values.outcomes import ExitCode, Outcome

FIRST_POLL = 0.5
LAST_POLL = 5.0
LOOKED_UP = (
    "run again: it asks what is there by then, waits for the lock of a task that still runs,"
    " and repeats nothing blindly"
)


@dataclass(slots=True)
class Deeds:
    """What a step has done so far.

    Args:
        differences: resources that were acted on, or are waited for.
        effects: effects of earlier runs that were repaid.
        systems: which systems were acted on.
        withheld: effects without consent, and whom they hit.
        deferred: reboots that come later by system, and whom they hit.
        unknown: results that must be looked up.
        by_hand: what a person must do.
        said: what a person said is done.
        voided: subjects that are not what they were.
        waits: why the step stopped before its end, or empty.
        problem: why it failed, if it did.
        cut: a part of it was not begun: the run was told to end, or the connection was cut.
    """

    differences: dict[Key, Difference] = field(default_factory=dict)
    effects: list[PlannedChange] = field(default_factory=list)
    systems: dict[str, None] = field(default_factory=dict)
    withheld: dict[Effect, str] = field(default_factory=dict)
    deferred: dict[tuple[str, Effect], str] = field(default_factory=dict)
    unknown: dict[Key, Result] = field(default_factory=dict)
    by_hand: dict[Key, Difference] = field(default_factory=dict)
    said: dict[Key, Difference] = field(default_factory=dict)
    voided: dict[str, None] = field(default_factory=dict)
    waits: str = ""
    problem: Diagnostic | None = None
    cut: bool = False

    @property
    def reboots(self) -> frozenset[str]:
        """Subjects that have to reboot before the step's outcome is known."""
        return frozenset(self.deferred.values())

    @property
    def changed(self) -> tuple[PlannedChange, ...]:
        """What was done, as data."""
        done = (each for each in self.differences.values() if not isinstance(each.remedy, Impossible))
        return (*(each.planned() for each in (*done, *self.said.values())), *self.effects)


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


def looks_at(run: Run, works: Sequence[Work], system: str) -> set[Any]:
    """Return all questions of some steps to one system, with those that their endpoints follow from."""
    found: set[Any] = set()
    for work in works:
        found.update(work.questions.get(system, ()))
        for resource in work.resources:
            if resource.key.system == system:
                found.update(resource.queries())
    for name in run.session.of_subject(works[0].step.subject.name):
        found.update(run.session.systems[name].spec.questions.get(system, ()))
    return found


def read_back(run: Run, works: Sequence[Work], systems: Sequence[str]) -> None:
    """Ask again, once a system, what some steps and later ones of the first one's subject look at.

    Args:
        run: the run.
        works: the steps.
        systems: which systems.

    Raises:
        ProvisionError: a system gives no answers.
    """
    for system in systems:
        wanted = looks_at(run, [*works, *run.later(works[0])], system)
        if run.session.subject_of(system) == works[0].step.subject.name:
            held = run.session.snapshot(system)
            wanted |= set(held.answers) if held is not None else set()
        run.session.ask(system, wanted, run.cancel, fresh=True)
    run.session.follow(systems)


def settle(run: Run, work: Work, deeds: Deeds) -> Ending:
    """Read back what a step did and return its ending."""
    changed = deeds.changed
    if (deeds.problem is not None or deeds.cut) and not deeds.unknown:
        return _broken_off(work, deeds, changed)
    try:
        read_back(run, [work], list(deeds.systems))
    except ProvisionError as error:
        if not deeds.unknown:
            raise
        return failed(_cut(work, deeds, error.diagnostics[0].summary), changed)
    wrong = _wrong(work, deeds, _left(run, deeds))
    if wrong is not None:
        return failed(wrong, changed)
    if deeds.waits:
        return _waits(deeds)
    if deeds.withheld:
        return _withheld(run, deeds, changed)
    outcome = Outcome.CHANGED if changed else Outcome.UNCHANGED
    return Ending(outcome, changed=changed, deferred=deeds.reboots)


def _broken_off(work: Work, deeds: Deeds, changed: tuple[PlannedChange, ...]) -> Ending:
    if deeds.problem is not None:
        return failed(deeds.problem, changed)
    summary = "interrupted: a part of it was not begun"
    told = Diagnostic("INTERRUPTED", summary, work.step.subject.name, severity=Severity.WARNING)
    return failed(told, changed, exit_code=ExitCode.INTERRUPTED)


def _wrong(work: Work, deeds: Deeds, left: dict[Key, tuple[Change, ...]]) -> Diagnostic | None:
    """Return why a step has failed after all, if it has."""
    if any(key in left for key in deeds.unknown):
        return _cut(work, deeds, "it was not done")
    if deeds.problem is not None:
        return deeds.problem
    if left:
        return _unsettled(work, deeds, left)
    return _cut(work, deeds, "it was done; what comes after it was not begun") if deeds.cut else None


def _left(run: Run, deeds: Deeds) -> dict[Key, tuple[Change, ...]]:
    """Return what still differs and no withheld or deferred effect explains; what takes time is polled."""
    # What nobody acted on may be older than what other steps did: it is looked at once more at once.
    pause = FIRST_POLL if deeds.systems else 0.0
    began = time.monotonic()
    while True:
        left = _unexplained(run, deeds)
        slow = {key: changes for key, changes in left.items() if comes_by_itself(changes)}
        deadline = max((each.deadline for changes in slow.values() for each in changes), default=0.0)
        spent = time.monotonic() - began
        if spent >= deadline:
            return left
        run.cancel.wait(min(pause, deadline - spent))
        pause = min(max(pause * 1.5, FIRST_POLL), LAST_POLL)
        for system in dict.fromkeys(key.system for key in slow):
            resources = [deeds.differences[key].resource for key in slow if key.system == system]
            run.session.ask(system, ask(resources), run.cancel, fresh=True)


def _unexplained(run: Run, deeds: Deeds) -> dict[Key, tuple[Change, ...]]:
    held_back = {*deeds.withheld, *(effect for _, effect in deeds.deferred)}
    left = {}
    for key, found in deeds.differences.items():
        seen = run.session.snapshot(key.system)
        changes = found.resource.changes(seen) if seen is not None else ()
        later = all(each.settles is not Settles.NOW for each in changes)
        if changes and not (later and held_back.intersection(found.effects)):
            left[key] = changes
    return left


def done_by_hand(run: Run, work: Work, deeds: Deeds) -> bool:
    """Ask the person whether it is done; after a yes it is looked at once, and the step goes on either way.

    Some things can only be proven later, by what does not exist yet: what a person says counts for this run,
    and what is not so is in the next plan again.
    """
    key, found = next(iter(deeds.by_hand.items()))
    lines = found.remedy.lines if isinstance(found.remedy, ByHand) else ()
    for line in lines:
        run.progress(work.step.id, line)
    if run.question("\n".join((*lines, "Done?"))) is not True:
        return False
    seen = run.session.ask(key.system, found.resource.queries(), run.cancel, fresh=True)
    if found.resource.changes(seen):
        run.progress(work.step.id, f"{key}: not seen yet, taken on your word")
    del deeds.by_hand[key]
    deeds.said[key] = found
    deeds.waits = ""
    return True


def _waits(deeds: Deeds) -> Ending:
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
    return Ending(
        Outcome.WAITING, deeds.waits, (diagnostic,), deeds.changed, stops=True, deferred=deeds.reboots
    )


def _withheld(run: Run, deeds: Deeds, changed: tuple[PlannedChange, ...]) -> Ending:
    home = run.planned.home
    at_home = [home[hit] for effect, hit in deeds.withheld.items() if effect.cls.reboots and hit in home]
    summary = f"waits for consent: {', '.join(map(str, deeds.withheld))}"
    missing = Diagnostic("CONSENT_MISSING", summary, severity=Severity.WARNING, remedy=_remedy(deeds))
    told = next(iter(at_home), missing)
    return Ending(Outcome.WAITING, told.summary, (told,), changed, deferred=deeds.reboots)


def _remedy(deeds: Deeds) -> str:
    if not deeds.withheld:
        return "do it, and run again"
    return "run again with " + " ".join(
        f"--allow {cls}" for cls in dict.fromkeys(e.cls for e in deeds.withheld)
    )


def _cut(work: Work, deeds: Deeds, found: str) -> Diagnostic:
    key, result = next(iter(deeds.unknown.items()))
    handle = f" ({result.handle})" if result.handle else ""
    return Diagnostic(
        "OUTCOME_UNKNOWN",
        f"{key}: no answer came{handle}; looked up: {found}",
        subject=work.step.subject.name,
        evidence=result.output[-20:],
        remedy=LOOKED_UP,
    )


def left_behind(work: Work, deeds: Deeds) -> Diagnostic:
    """Return what a run that leaves cannot look up any more, named by its UPID or process group."""
    named = [
        f"{key}{f' ({result.handle})' if result.handle else ''}" for key, result in deeds.unknown.items()
    ]
    return Diagnostic(
        "OUTCOME_UNKNOWN",
        f"interrupted: may still go on: {', '.join(named)}",
        subject=work.step.subject.name,
        evidence=tuple(line for result in deeds.unknown.values() for line in result.output[-20:]),
        remedy=LOOKED_UP,
    )


def _unsettled(work: Work, deeds: Deeds, wrong: dict[Key, tuple[Change, ...]]) -> Diagnostic:
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
