"""Finds managed objects that the inventory no longer declares, and the steps that remove them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from provision.contracts.resource import Resource
from provision.engine.difference import differences, pending_changes
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
        expander: calls a role; one with `orphan_owners` names who may hold its things. What was not chosen is
            not asked.
        ask: asks what resources read.
    """

    def __init__(self, expander: Expander, ask: Callable[[Iterable[Resource]], None]) -> None:
        self._expander = expander
        self._session = expander.session
        self._ask = ask
        self.warnings: list[Diagnostic] = []
        self._resources: dict[StepId, tuple[Resource, ...]] = {}
        self._problems: dict[str, Diagnostic] = {}
        self._failed: dict[StepId, Diagnostic] = {}
        environment, options = expander.environment, expander.options
        self.states = [
            StepState(Step(StepId(entry.role, owner.name), owner), role, questions)
            for entry in environment.playbook.entries
            if (role := environment.roles.get(entry.role)) and role.orphan_owners
            if options.includes(entry.role)
            for owner, questions in role.orphan_owners(environment.inventory).items()
            if options.includes(subject=owner.name)
        ]

    def look(self, reported: Collection[str]) -> None:
        """Call the roles, and again once what they named was asked.

        Args:
            reported: systems whose silence a step reports.
        """
        for _ in range(ROUNDS):
            before = self._resources
            self._failed.clear()
            self._resources = {state.step.id: self._call(state) for state in self.states}
            if self._resources == before:
                break
            self._ask(resource for resources in self._resources.values() for resource in resources)
        self.warnings += [
            replace(diagnostic, severity=Severity.WARNING) for diagnostic in self._failed.values()
        ]
        for name in sorted({name for state in self.states for name in state.questions}):
            error = self._session.error_of([name])
            if error is None or isinstance(error, AwayError):
                continue
            reason = error.diagnostics[0]
            self._problems[name] = reason
            if name not in reported:
                summary = f"unknown what is left on {name}: {reason.summary}"
                self.warnings.append(
                    replace(reason, code="ORPHANS_UNKNOWN", summary=summary, severity=Severity.WARNING)
                )

    def _call(self, state: StepState) -> tuple[Resource, ...]:
        try:
            return self._expander.orphans(state)
        except ProvisionError as error:
            self._failed[state.step.id] = error.diagnostics[0]
            return ()

    def keys(self) -> tuple[str, ...]:
        """Return the keys of what is there, each once."""
        resources = [resource for resources in self._resources.values() for resource in resources]
        return tuple(dict.fromkeys(str(change.key) for change in differences(resources, self._session)))

    def removals(self, states: Sequence[StepState]) -> list[StepState]:
        """Return a step for each owner that removes what is there; steps that act on its systems come after.

        Where all is destroyed, what could not be looked at is a step of its own, which does not end well.

        Args:
            states: all other steps.
        """
        by_owner: dict[Subject, list[StepState]] = {}
        for state in self.states:
            by_owner.setdefault(state.step.subject, []).append(state)
        removals: list[StepState] = []
        for owner, theirs in by_owner.items():
            if self._expander.destroying:
                removals += self._unknown(owner, theirs)
            # As in a removal: what came last goes first.
            resources = [
                resource for state in reversed(theirs) for resource in self._resources[state.step.id]
            ]
            step = Step(StepId(ORPHANS, owner.name), owner)
            removal = step_with(step, resources, self._session, self._debts(theirs, states))
            if not removal.plan.changes:
                continue
            removals.append(removal)
            for state in states:
                if state.role is None or state.systems & removal.systems:
                    state.step = replace(state.step, after=state.step.after | {step.id})
        return removals

    def _unknown(self, owner: Subject, states: Sequence[StepState]) -> Iterator[StepState]:
        """Yield a step that says what of an owner was not looked at, and why, if anything was not."""
        roles: dict[Diagnostic, list[str]] = {}
        for state in states:
            silent = (self._problems[name] for name in state.questions if name in self._problems)
            reason = next(silent, None) or self._failed.get(state.step.id)
            if reason is not None:
                roles.setdefault(reason, []).append(state.step.id.role)
        if not roles:
            return
        summaries = [
            f"what {' and '.join(names)} left on {owner.name} was not looked at: {reason.summary}"
            for reason, names in roles.items()
        ]
        first = next(iter(roles))
        problem = replace(first, summary=summaries[0], evidence=(*first.evidence, *summaries[1:]))
        unknown = StepState(Step(StepId(UNKNOWN, owner.name), owner), None, {})
        unreached = summaries[0] if first in self._problems.values() else ""
        unknown.plan = StepPlan(unknown.step, unreached=unreached, problem=problem)
        yield unknown

    def _debts(self, owners: Sequence[StepState], states: Sequence[StepState]) -> list[PlannedChange]:
        """Return the effects that a removal which died left on systems that no other step looks at."""
        others = {name for state in states for name in state.systems}
        names = dict.fromkeys(name for state in owners for name in state.questions if name not in others)
        snapshots = self._session.basis(names)
        return pending_changes(snapshots.values(), destroying=self._expander.destroying)


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
    changes = differences(state.resources, session)
    state.plan = StepPlan(step, (*changes, *debts), len(state.resources) - len(changes))
    return state
