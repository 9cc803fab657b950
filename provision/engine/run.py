"""What all threads of one run share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from provision.contracts.effect import Effect
from provision.engine.journal import Journal
from provision.engine.model import ConsentNeed, PlannedChange, StepId
from provision.engine.session import Session
from provision.engine.work import Expander, Planned, Work
from provision.engine.world import Verify, World
from provision.values.cancel import Cancel
from provision.values.consent import Consent
from provision.values.diagnostics import Diagnostic
from provision.values.events import Emitter, Problem, StepEnded, StepProgress, StepStarted
from provision.values.outcomes import ExitCode, Outcome

Ask = Callable[[str], bool | None]


@dataclass(slots=True)
class Ending:
    """How a step ended, as the scheduler needs it.

    Args:
        outcome: its outcome.
        reason: in words.
        diagnostics: problems.
        changed: what was done.
        stops: whether steps that need this one cannot go on.
        deferred: subjects that have to reboot before the outcome is known.
        excused: unreached without fault.
        exit_code: what it adds to the run's exit code, if its outcome says too little.
    """

    outcome: Outcome
    reason: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()
    changed: tuple[PlannedChange, ...] = ()
    stops: bool = False
    deferred: frozenset[str] = frozenset()
    excused: bool = False
    exit_code: ExitCode | None = None


def failed(
    diagnostic: Diagnostic, changed: tuple[PlannedChange, ...] = (), exit_code: ExitCode | None = None
) -> Ending:
    """Return the ending of a step that failed."""
    return Ending(Outcome.FAILED, diagnostic.summary, (diagnostic,), changed, stops=True, exit_code=exit_code)


@dataclass(slots=True)
class Run:
    """One run.

    Args:
        id: of the run.
        world: the site.
        session: its open systems.
        planned: the promise.
        emit: receives events; safe to call from all threads; takes secrets out of them.
        cancel: the user's will.
        journal: what happened.
        ask: puts a question to a person.
        verify: runs the checks; None when the playbook has none.
        remembered: questions of former runs by system: a system that is reached late is asked all at once.
        usual: median seconds of steps in former runs.
        owed: reboots that are allowed and not yet done, by subject.
        withheld: reboots that lack consent, by subject.
        held_back: effects by system whose marker on the target is this run's own doing.
        missing: all effects that lack consent.
        ended: steps that have ended, those that wait for a reboot included.
        touched: systems that a step acted on.
        verification: report of the checks.
    """

    id: str
    world: World
    session: Session
    planned: Planned
    emit: Emitter
    cancel: Cancel
    journal: Journal
    ask: Ask
    verify: Verify | None = None
    remembered: Mapping[str, frozenset[object]] = field(default_factory=dict)
    usual: Mapping[StepId, float] = field(default_factory=dict)
    owed: dict[str, dict[tuple[str, Effect], None]] = field(default_factory=dict)
    withheld: dict[str, ConsentNeed] = field(default_factory=dict)
    held_back: set[tuple[str, Effect]] = field(default_factory=set)
    missing: dict[ConsentNeed, None] = field(default_factory=dict)
    ended: set[StepId] = field(default_factory=set)
    touched: dict[StepId, set[str]] = field(default_factory=dict)
    verification: object = None
    lock: threading.RLock = field(default_factory=threading.RLock)
    _asking: threading.Lock = field(default_factory=threading.Lock)
    _by_subject: dict[str, list[Work]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for work in self.planned.works.values():
            self._by_subject.setdefault(work.step.subject.name, []).append(work)

    @property
    def subjects(self) -> frozenset[str]:
        """All that this run has steps for."""
        return frozenset(self._by_subject)

    @property
    def expander(self) -> Expander:
        """Expands steps with this run's generated values."""
        return Expander(self.world, self.session, self.planned.generated, destroying=self.planned.destroying)

    def question(self, text: str) -> bool | None:
        """Put a question to a person, one at a time."""
        with self._asking:
            return None if self.cancel.draining else self.ask(text)

    def consent(self, system: str, effect: Effect) -> bool:
        """Tell whether an effect may happen; asks a person where the policy says so."""
        consents = self.planned.consents
        found = consents.of(system, effect)
        if effect.cls.reboots and consents.hit(system, effect) in self.planned.home:
            with self.lock:  # this process would die with it: a person does it, and runs again
                self.withheld[consents.hit(system, effect)] = ConsentNeed(system, effect, Consent.ALLOW)
            return False
        if found is Consent.ASK:
            hit = consents.hit(system, effect) or system
            with self._asking:  # who waited for this answer does not ask again
                answer = consents.answers.get((hit, effect.cls))
                if answer is None and not self.cancel.draining:
                    answer = self.ask(f"{hit}: allow {effect}?")
                if answer is not None:
                    consents.answers[hit, effect.cls] = answer
            if answer:
                return True
        if found is Consent.ALLOW:
            return True
        with self.lock:
            need = ConsentNeed(system, effect, found)
            self.missing[need] = None
            if effect.cls.reboots:
                self.withheld[consents.hit(system, effect)] = need
        return False

    def step_started(self, step: StepId, usually: float = 0.0) -> None:
        """Tell that a step begins, and the seconds that it usually takes."""
        self.emit(StepStarted(run=self.id, subject=step.subject, role=step.role, usually=usually))

    def step_ended(self, step: StepId, outcome: Outcome, seconds: float, reason: str) -> None:
        """Tell and write down how a step ended."""
        self.journal.step(self.id, step, str(outcome), seconds, reason)
        self.emit(
            StepEnded(
                run=self.id,
                subject=step.subject,
                role=step.role,
                outcome=str(outcome),
                seconds=seconds,
                reason=reason,
            )
        )

    def progress(self, step: StepId, line: str) -> None:
        """Tell what a step does now."""
        self.emit(StepProgress(run=self.id, subject=step.subject, role=step.role, line=line))

    def problem(self, step: StepId, diagnostic: Diagnostic) -> None:
        """Tell and write down a problem."""
        self.journal.problem(self.id, step, diagnostic)
        self.emit(Problem(run=self.id, diagnostic=diagnostic.as_json()))

    def later(self, work: Work) -> list[Work]:
        """Return the steps of the same subject that have not ended, this one left out."""
        return [
            each
            for each in self._by_subject[work.step.subject.name]
            if each.step.id not in self.ended and each.step.id != work.step.id
        ]
