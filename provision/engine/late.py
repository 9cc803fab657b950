"""Which steps cannot be planned yet: a step before them, by edges, alters or brings what they read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from provision.contracts.resource import AnswerId, Resource
from provision.contracts.role import NotYet
from provision.engine.consent import Consents
from provision.engine.environment import Options
from provision.engine.expander import Expander
from provision.engine.graph import Ancestry
from provision.engine.model import StepId
from provision.engine.session import Session
from provision.engine.step_state import StepState
from provision.engine.steps import expand
from provision.values.diagnostics import Diagnostic


class Alterations:
    """What the steps that were planned so far alter for those that come after them.

    Args:
        session: whose system is whose.
        consents: whom an effect affects.
        ancestry: of all steps of the plan.
    """

    def __init__(self, session: Session, consents: Consents, ancestry: Ancestry) -> None:
        self._session = session
        self._consents = consents
        self._ancestry = ancestry
        self._created: dict[str, set[StepId]] = {}  # by subject
        self._rebooted: dict[str, set[StepId]] = {}  # by subject
        self._answers: dict[AnswerId, set[StepId]] = {}
        self._by_subject: dict[str, set[StepId]] = {}
        self._by_system: dict[str, set[StepId]] = {}
        self._active: set[StepId] = set()

    def note(self, state: StepState) -> None:
        """Take in what a planned step alters."""
        step, plan = state.step.id, state.plan
        if not (plan.changes or plan.late or plan.problem or plan.unreached):
            return
        self._active.add(step)
        self._by_subject.setdefault(step.subject, set()).add(step)
        for system in state.systems:
            self._by_system.setdefault(system, set()).add(step)
        for change in plan.changes:
            if change.creates:
                self._created.setdefault(change.creates, set()).add(step)
            for effect in (*change.effects, *change.risks):
                subject = self._consents.affected_subject(change.key.system, effect)
                if effect.cls.replaces_target:
                    self._created.setdefault(subject, set()).add(step)
                elif effect.cls.reboots or effect.cls.boots_target:
                    self._rebooted.setdefault(subject, set()).add(step)
            for answer in change.affects:
                self._answers.setdefault(answer, set()).add(step)

    def creator(self, state: StepState, system: str) -> StepId | None:
        """Return the step before this one that creates the subject of a system, or makes it again."""
        return self._nearest(state, self._created.get(self._session.subject_of(system)))

    def altering(self, state: StepState, resources: Sequence[Resource]) -> StepId | None:
        """Return the step before this one that alters what its role reads on existing systems.

        A question that the resources of the step ask themselves never counts.

        Args:
            state: the step.
            resources: what its role wants by the answers at hand.
        """
        for system, queries in state.questions.items():
            if state.needs_new_boot:
                rebooting = self._nearest(state, self._rebooted.get(self._session.subject_of(system)))
                if rebooting is not None:
                    return rebooting
            affected = [query for query in queries if (system, query) in self._answers]
            if not affected:
                continue
            own = {
                query
                for resource in resources
                if resource.key.system == system
                for query in resource.queries()
            }
            for query in affected:
                altering = None if query in own else self._nearest(state, self._answers[system, query])
                if altering is not None:
                    return altering
        return None

    def bringer(self, state: StepState, system: str) -> StepId | None:
        """Return the step before this one that may bring an answer which a system does not have yet."""
        subject = self._session.subject_of(system)
        candidates = {*self._by_subject.get(subject, ()), *self._by_system.get(system, ())}
        return self._nearest(state, candidates)

    def active(self, state: StepState) -> StepId | None:
        """Return the nearest step before this one that does anything at all."""
        return self._nearest(state, self._active)

    def _nearest(self, state: StepState, candidates: set[StepId] | None) -> StepId | None:
        return self._ancestry.nearest(state.step.id, candidates) if candidates else None


def bringer_of(session: Session, states: Sequence[StepState], step: StepId, system: str) -> StepState | None:
    """Return the nearest step before another one whose subject owns a system, or that acts on it."""
    subject = session.subject_of(system)
    candidates = {
        state.step.id: state
        for state in states
        if state.step.subject.name == subject
        or any(resource.key.system == system for resource in state.resources)
    }
    nearest = Ancestry(state.step for state in states).nearest(step, candidates.keys())
    return None if nearest is None else candidates[nearest]


def missing_answer(expander: Expander, step: StepId, missing: NotYet) -> Diagnostic:
    """Return the problem of an answer that nothing in this run brings."""
    diagnostic = missing.diagnostics[0]
    left_out = _step_left_out(expander, step, missing.system)
    if left_out is None:
        return diagnostic
    summary = f"{diagnostic.summary}; this run leaves out the step `{left_out}`, which may bring it"
    return replace(diagnostic, summary=summary)


def _step_left_out(expander: Expander, step: StepId, system: str) -> StepId | None:
    """Return the step that could have brought an answer and was not chosen for this run, or None."""
    if not (expander.options.targets or expander.options.steps):
        return None
    steps = expand(expander.environment, Options())
    subject = expander.session.subject_of(system)
    nearest = Ancestry(steps).nearest(step, {other.id for other in steps if other.id.subject == subject})
    chosen = {other.id for other in expand(expander.environment, expander.options)}
    return nearest if nearest not in chosen else None
