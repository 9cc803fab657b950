"""What all threads of one run share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from provision.contracts.driver import Result, Verdict
from provision.contracts.effect import Effect
from provision.contracts.resource import Resource
from provision.contracts.rule import Evidence
from provision.engine.environment import Environment, Verify
from provision.engine.expander import Expander
from provision.engine.journal import Journal
from provision.engine.model import ConsentNeed, StepId
from provision.engine.planned import Checked, Planned, checked_key
from provision.engine.session import Session
from provision.engine.step_state import StepState
from provision.values.cancel import Cancel
from provision.values.consent import Consent
from provision.values.diagnostics import Diagnostic
from provision.values.events import EffectDone, Emitter, Problem, StepEnded, StepProgress, StepStarted
from provision.values.outcomes import Outcome

Ask = Callable[[str], bool | None]


@dataclass(slots=True)
class Run:
    """One run.

    Args:
        id: of the run.
        environment: the site.
        session: its open systems.
        planned: the promise.
        emit: receives events; safe to call from all threads; takes secrets out of them.
        cancel: the user's will.
        journal: what happened.
        ask: puts a question to a person.
        verify: runs the checks; None when the playbook has none.
        remembered: questions of former runs by system: a system that is reached late is asked all at once.
        typical_seconds: median seconds of steps in former runs.
        owed: reboots that are allowed and not yet done, by subject.
        withheld: why there is no reboot that a step may need, by subject.
        held_back: effects by system whose marker on the target is this run's own doing.
        missing: all effects that lack consent.
        verification: report of the checks.
    """

    id: str
    environment: Environment
    session: Session
    planned: Planned
    emit: Emitter
    cancel: Cancel
    journal: Journal
    ask: Ask
    verify: Verify | None = None
    remembered: Mapping[str, frozenset[object]] = field(default_factory=dict)
    typical_seconds: Mapping[StepId, float] = field(default_factory=dict)
    owed: dict[str, dict[tuple[str, Effect], None]] = field(default_factory=dict)
    withheld: dict[str, str] = field(default_factory=dict)
    held_back: set[tuple[str, Effect]] = field(default_factory=set)
    missing: dict[ConsentNeed, None] = field(default_factory=dict)
    verification: object = None
    lock: threading.RLock = field(default_factory=threading.RLock)
    _asking: threading.Lock = field(default_factory=threading.Lock)
    _findings: dict[Checked, tuple[Diagnostic, ...]] = field(default_factory=dict)
    _by_subject: dict[str, list[StepState]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for state in self.planned.states.values():
            self._by_subject.setdefault(state.step.subject.name, []).append(state)

    def checked(self, resources: Sequence[Resource], systems: frozenset[str]) -> tuple[Diagnostic, ...]:
        """Return what the rules say about some desired states, and about some whole systems."""
        inventory, snapshots = self.environment.inventory, self.session.snapshots()
        evidence = Evidence(inventory, snapshots, resources, systems, self.expander.destroying)
        return tuple(self.environment.rules(evidence))

    def findings(self, systems: Iterable[str]) -> list[Diagnostic]:
        """Return what the rules about whole systems found; each looks once at what a system answered."""
        findings: list[Diagnostic] = []
        snapshots = self.session.snapshots()
        for name in systems:
            if name not in snapshots:
                continue
            key = checked_key(snapshots[name])
            with self.lock:
                if key not in self._findings and key not in self.planned.checked:
                    self._findings[key] = self.checked((), frozenset({name}))
                findings += self._findings.get(key, ())
        return findings

    @property
    def subjects(self) -> frozenset[str]:
        """All that this run has steps for."""
        return frozenset(self._by_subject)

    @property
    def expander(self) -> Expander:
        """What the run is about."""
        return self.planned.expander

    def question(self, text: str) -> bool | None:
        """Put a question to a person, one at a time."""
        with self._asking:
            return None if self.cancel.draining else self.ask(text)

    def consent(self, system: str, effect: Effect) -> bool:
        """Return whether an effect may happen; asks a person where the policy says so."""
        consents = self.planned.consents
        consent = consents.of(system, effect)
        subject = consents.affected_subject(system, effect)
        if effect.cls.reboots and subject in self.planned.home:
            with self.lock:  # this process would die with it: a person does it, and runs again
                self.withheld[subject] = f"waits for {effect} of {system}"
            return False
        if consent is Consent.ALLOW or (
            consent is Consent.ASK and self._ask_consent(subject or system, effect)
        ):
            return True
        with self.lock:
            self.missing[ConsentNeed(system, effect, consent)] = None
            if effect.cls.reboots:
                self.withheld[subject] = f"waits for consent: {effect} of {system}"
        return False

    def _ask_consent(self, subject: str, effect: Effect) -> bool:
        answers = self.planned.consents.answers
        with self._asking:  # who waited for this answer does not ask again
            answer = answers.get((subject, effect.cls))
            if answer is None and not self.cancel.draining:
                answer = self.ask(f"{subject}: allow {effect}?")
            if answer is not None:
                answers[subject, effect.cls] = answer
        return bool(answer)

    def step_started(self, step: StepId, usually: float = 0.0) -> None:
        """Tell that a step begins, and the seconds that it usually takes."""
        self.journal.step_begins(step)
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

    def effect_ended(self, system: str, effect: Effect, result: Result) -> None:
        """Tell and write down how an effect ended."""
        name, verdict = str(effect), str(result.verdict)
        self.journal.effect(self.id, system, name, result)
        if result.verdict is not Verdict.NOT_BEGUN:
            event = EffectDone(
                run=self.id, system=system, effect=name, verdict=verdict, seconds=result.seconds
            )
            self.emit(event)

    def progress(self, step: StepId, line: str) -> None:
        """Tell what a step does now."""
        self.emit(StepProgress(run=self.id, subject=step.subject, role=step.role, line=line))

    def problem(self, step: StepId, diagnostic: Diagnostic) -> None:
        """Tell and write down a problem."""
        self.journal.problem(self.id, step, diagnostic)
        self.emit(Problem(run=self.id, diagnostic=diagnostic.as_json()))

    def of_subject(self, subject: str) -> list[StepState]:
        """Return the steps of a subject in the order of the plan."""
        return self._by_subject.get(subject, [])

    def later(self, state: StepState) -> list[StepState]:
        """Return the steps of the same subject that have not ended, this one left out."""
        siblings = self.of_subject(state.step.subject.name)
        return [sibling for sibling in siblings if sibling.result is None and sibling is not state]
