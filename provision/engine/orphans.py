"""Finds managed objects that the inventory no longer declares, and the steps that remove them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from provision.contracts.resource import Resource, changes_of
from provision.engine.difference import difference, pending_change, pending_effects
from provision.engine.environment import Environment, Options
from provision.engine.expander import Expander
from provision.engine.model import PlannedChange, Step, StepId, StepPlan
from provision.engine.session import AwayError, Session
from provision.engine.step_state import StepState
from provision.engine.steps import Desired
from provision.inventory import Subject
from provision.values.diagnostics import Diagnostic, Severity
from provision.values.errors import ProvisionError

ORPHANS = "orphans"
"""Role name of the steps that remove them."""
UNKNOWN = "orphans_unknown"
"""Role name of the steps of a removal that report where nobody could look: something may be left there."""
ROUNDS = 4
"""A role names what it must read, then what that belongs to, then what belongs to it."""


class Orphans:
    """The managed objects of one plan that the inventory no longer declares.

    Args:
        environment: the site; a role with `orphan_owners` names who may hold its things.
        options: targets and steps: what was not chosen is not asked.
    """

    def __init__(self, environment: Environment, options: Options) -> None:
        self.states: list[StepState] = []
        self.warnings: list[Diagnostic] = []
        self._resources: dict[StepId, tuple[Resource, ...]] = {}
        self._problems: dict[str, Diagnostic] = {}
        self._failed: dict[StepId, Diagnostic] = {}
        for entry in environment.playbook.entries:
            role = environment.roles.get(entry.role)
            if role is None or role.orphan_owners is None:
                continue
            if options.steps and entry.role not in options.steps:
                continue
            for owner, questions in role.orphan_owners(environment.inventory).items():
                if not options.targets or owner.name in options.targets:
                    step = Step(StepId(entry.role, owner.name), owner)
                    self.states.append(StepState(step, role, questions))

    def look(
        self,
        expander: Expander,
        session: Session,
        ask: Callable[[Iterable[Resource]], None],
        reported: set[str],
    ) -> None:
        """Call the roles, and again once what they named was asked.

        Args:
            expander: calls a role.
            session: the answers.
            ask: asks what resources read.
            reported: systems whose silence a step reports.
        """
        for _ in range(ROUNDS):
            before = self._resources
            self._failed.clear()
            self._resources = {state.step.id: self._call(expander, state) for state in self.states}
            if self._resources == before:
                break
            ask(resource for resources in self._resources.values() for resource in resources)
        self.warnings += [
            replace(diagnostic, severity=Severity.WARNING) for diagnostic in self._failed.values()
        ]
        silent = {name for state in self.states for name in state.questions if session.snapshot(name) is None}
        for name in sorted(silent):
            system = session.systems.get(name)
            error = system.error if system is not None else None
            if error is None or isinstance(error, AwayError):
                continue
            reason = error.diagnostics[0]
            self._problems.setdefault(name, reason)
            if name not in reported:
                summary = f"unknown what is left on {name}: {reason.summary}"
                self.warnings.append(
                    replace(reason, code="ORPHANS_UNKNOWN", summary=summary, severity=Severity.WARNING)
                )

    def _call(self, expander: Expander, state: StepState) -> tuple[Resource, ...]:
        try:
            return expander.orphans(state)
        except ProvisionError as error:
            self._failed[state.step.id] = error.diagnostics[0]
            return ()

    def keys(self, session: Session) -> tuple[str, ...]:
        """Return the keys of what is there, each once."""
        keys: dict[str, None] = {}
        for resource in (resource for resources in self._resources.values() for resource in resources):
            snapshot = session.snapshot(resource.key.system)
            if snapshot is not None and changes_of(resource, snapshot):
                keys[str(resource.key)] = None
        return tuple(keys)

    def removals(self, session: Session, states: Sequence[StepState], *, destroying: bool) -> list[StepState]:
        """Return a step for each owner that removes what is there; steps that act on its systems come after.

        Args:
            session: the answers.
            states: all other steps.
            destroying: what could not be looked at is a step of its own, which does not end well.
        """
        by_owner: dict[Subject, list[StepState]] = {}
        for state in self.states:
            by_owner.setdefault(state.step.subject, []).append(state)
        removals = []
        for owner, theirs in by_owner.items():
            step = Step(StepId(ORPHANS, owner.name), owner)
            # As in a removal: what came last goes first.
            resources = [
                resource for state in reversed(theirs) for resource in self._resources.get(state.step.id, ())
            ]
            debts = _debts(theirs, states, session, destroying=destroying)
            removal = step_with(step, resources, session, debts)
            unknown = self._unknown(owner, theirs) if destroying else None
            if unknown is not None:
                removals.append(unknown)
            if not removal.plan.changes:
                continue
            removals.append(removal)
            for state in states:
                if state.role is None or state.systems & removal.systems:
                    state.step = replace(state.step, after=state.step.after | {step.id})
        return removals

    def _unknown(self, owner: Subject, states: Sequence[StepState]) -> StepState | None:
        """Return a step that says what of an owner was not looked at, and why; None if all was."""
        roles: dict[Diagnostic, list[str]] = {}
        for state in states:
            silent = (self._problems[name] for name in state.questions if name in self._problems)
            reason = next(silent, None) or self._failed.get(state.step.id)
            if reason is not None:
                roles.setdefault(reason, []).append(state.step.id.role)
        if not roles:
            return None
        summaries = [
            f"what {' and '.join(names)} left on {owner.name} was not looked at: {reason.summary}"
            for reason, names in roles.items()
        ]
        first = next(iter(roles))
        problem = replace(first, summary=summaries[0], evidence=(*first.evidence, *summaries[1:]))
        unknown = StepState(Step(StepId(UNKNOWN, owner.name), owner), None, {})
        unreached = summaries[0] if first in self._problems.values() else ""
        unknown.plan = StepPlan(unknown.step, unreached=unreached, problem=problem)
        return unknown


def _debts(
    owners: Sequence[StepState], states: Sequence[StepState], session: Session, *, destroying: bool
) -> list[PlannedChange]:
    """Return the effects that a removal which died left on systems that no other step looks at."""
    others = {name for state in states for name in state.systems}
    return [
        pending_change(name, effect)
        for name in dict.fromkeys(name for state in owners for name in state.questions)
        if name not in others and (snapshot := session.snapshot(name)) is not None
        for effect in pending_effects(snapshot, destroying=destroying)
    ]


def step_with(
    step: Step, resources: Iterable[Resource], session: Session, debts: Iterable[PlannedChange] = ()
) -> StepState:
    """Return a step without a role, planned from the answers at hand.

    Args:
        step: what it is called.
        resources: in the order in which they are brought about.
        session: the answers.
        debts: effects that it pays besides.
    """
    desired = Desired()
    state = StepState(step, None, {}, desired.states(desired.unite(step.id, resources)))
    changes = []
    for resource in state.resources:
        snapshot = session.snapshot(resource.key.system)
        differing = difference(resource, snapshot) if snapshot is not None else None
        if differing is not None:
            changes.append(differing.planned())
    unchanged = len(state.resources) - len(changes)
    state.plan = StepPlan(step, (*changes, *debts), unchanged)
    return state


def asked_of(states: Iterable[StepState]) -> Mapping[str, set[object]]:
    """Return what the roles of some steps ask, by system."""
    asked: dict[str, set[object]] = {}
    for state in states:
        for system, queries in state.questions.items():
            asked.setdefault(system, set()).update(queries)
    return asked
