"""What would be done now: expansion of all steps, their changes, what is late, and what refuses."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from provision.contracts.change import Key
from provision.contracts.effect import Effect
from provision.contracts.remedy import Impossible
from provision.contracts.resource import Creatable, Resource
from provision.contracts.role import Context, NotYet
from provision.contracts.rule import Evidence
from provision.engine.consent import Consents, hook_targets, ranked
from provision.engine.difference import (
    difference,
    differences,
    pending_changes,
    settles_without_action,
)
from provision.engine.environment import Environment, Options
from provision.engine.expander import Expander
from provision.engine.graph import Ancestry, narrowed, ordered, reversed_steps
from provision.engine.late import Alterations, missing_answer
from provision.engine.model import ConsentNeed, Plan, PlannedChange, Step, StepId, StepPlan
from provision.engine.observe import close_over, observe
from provision.engine.orphans import Orphans
from provision.engine.planned import Planned, checked_key
from provision.engine.questions import Questions
from provision.engine.retire import insert, retire_states
from provision.engine.rotation import declared_values, rotation_steps
from provision.engine.session import AwayError, Session
from provision.engine.step_state import StepState
from provision.engine.steps import Desired, expand
from provision.inventory.playbook import VERIFY
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic, Severity
from provision.values.errors import ProvisionError, Refused, UsageError


class Planner:
    """Makes the plan of one call."""

    def __init__(
        self,
        environment: Environment,
        session: Session,
        options: Options,
        remembered: Mapping[str, frozenset[Any]],
        cancel: Cancel,
        *,
        destroying: bool = False,
    ) -> None:
        self.environment = environment
        self.session = session
        self.options = options
        self.remembered = {} if destroying else remembered
        self.cancel = cancel
        self.destroying = destroying
        self.generated = environment.generated()
        self.expander = Expander(environment, session, options, self.generated, destroying=destroying)
        self.desired = Desired()
        self.refusals: list[Diagnostic] = []
        self.usage: list[Diagnostic] = []
        self.orphans = Orphans(self.expander, self._ask_missing)
        self.reported: list[Diagnostic] = []

    def plan(self, steps: Sequence[Step] | None = None) -> Planned:
        """Ask all systems and return what would be done.

        Args:
            steps: what `expand` returns for this environment and these options, if it was called already.

        Raises:
            UsageError: targets, steps or desired states contradict each other.
            Interrupted: the run must leave.
        """
        began = time.monotonic()
        steps = expand(self.environment, self.options) if steps is None else steps
        if self.destroying:
            steps = self._backwards(steps)
        states = [self._state_of(step) for step in steps]
        retiring = [] if self.destroying else retire_states(self.environment, self.options)
        values = declared_values(states, self.environment.inventory).values()
        self.generated.bind(self.session, values, self.options.rotate)
        self._observe([*retiring, *states])
        drafts = {state.step.id: self._draft(state) for state in (*retiring, *states)}
        if self.usage:
            raise UsageError(list(dict.fromkeys(self.usage)))
        self._ask_missing(resource for draft in drafts.values() for resource in draft.resources)
        states = self._with_retiring(states, retiring, drafts)
        self.orphans.look({name for state in states for name in state.questions})
        self.consents = Consents(
            self.environment.policy,
            self.options.allow,
            self.session.subject_of,
            frozenset(step.subject.name for step in steps),
            everything=self.destroying,
        )
        removals = self.orphans.removals(states) if self.destroying or self.options.prune else []
        begins, finishes = rotation_steps(self.expander, states, self._ask_missing)
        self.ancestry = Ancestry(state.step for state in states)
        late: set[StepId] = set()
        while True:  # what is late wants nothing yet, and that may change what others show
            self._unite(states, drafts, late)
            self._compare(states, drafts)
            now = {state.step.id for state in states if state.plan.late}
            if now <= late:
                break
            late |= now
        planned = self._finished([*removals, *begins, *states, *finishes])
        planned.seconds = time.monotonic() - began
        return planned

    def _with_retiring(
        self, states: Sequence[StepState], retiring: Sequence[StepState], drafts: Mapping[StepId, _Draft]
    ) -> list[StepState]:
        """Return all steps in order, among them the retire steps that have, or may have, something to do."""

        def has_nothing_to_do(state: StepState) -> bool:
            draft = drafts[state.step.id]
            silence = self._silence(state.required)
            if isinstance(silence, AwayError) and silence.away.absent:
                return True  # what does not exist has nothing that could be removed
            if draft.missing or draft.problem or silence is not None:
                return False
            systems = {resource.key.system for resource in draft.resources}
            return len(self.session.basis(systems)) == len(systems) and not differences(
                draft.resources, self.session
            )

        needed = [state for state in retiring if not has_nothing_to_do(state)]
        insert(needed, states, self.environment, self.session)
        by_id = {state.step.id: state for state in (*needed, *states)}
        return [by_id[step.id] for step in ordered([state.step for state in by_id.values()])]

    def _unite(self, states: Sequence[StepState], drafts: Mapping[StepId, _Draft], late: set[StepId]) -> None:
        self.desired = Desired()
        keys: dict[StepId, tuple[Key, ...]] = {}
        for state in states:
            draft = drafts[state.step.id]
            if state.step.id not in late and draft.resources and not state.step.separate:
                keys[state.step.id] = self.desired.unite(state.step.id, draft.resources)
        united: list[Resource] = []
        for state in states:
            if state.step.separate:
                state.resources = self.desired.unwanted(drafts[state.step.id].resources)
                continue
            state.resources = self.desired.states(keys.get(state.step.id, ()))
            asked = set(map(id, drafts[state.step.id].resources))
            united += [resource for resource in state.resources if id(resource) not in asked]
        self._ask_missing(united)
        for state in states:
            state.basis = self.session.basis(state.systems)

    def _compare(self, states: Sequence[StepState], drafts: Mapping[StepId, _Draft]) -> None:
        self.reported = []
        self.consents.born.clear()
        self.alterations = Alterations(self.session, self.consents, self.ancestry)
        pending_seen: set[str] = set()
        for state in states:
            state.plan = self._step_plan(state, drafts[state.step.id], pending_seen)
            self.alterations.note(state)
            self._note_born(state)

    # ------------------------------------------------------------ asking

    def _backwards(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """Return the steps that remove something, last ones first; edges lead through those left out."""
        roles, inventory = self.environment.roles, self.environment.inventory
        able = {
            step.id
            for step in steps
            if (role := roles.get(step.id.role)) and role.retired and role.retires(inventory, step.subject)
        }
        return reversed_steps(narrowed(steps, able))

    def _state_of(self, step: Step) -> StepState:
        if step.id.role == VERIFY:
            return StepState(step, None, {})
        role = self.environment.roles[step.id.role]
        inventory, subject = self.environment.inventory, step.subject
        optional = frozenset(role.optional(inventory, subject))
        return StepState(step, role, role.questions(inventory, subject), optional=optional)

    def _observe(self, states: Sequence[StepState]) -> None:
        needed = close_over(Questions(*(state.questions for state in states)), self.session)
        subjects = {state.step.subject.name for state in states}
        questions = Questions(*(state.questions for state in (*states, *self.orphans.states)))
        if not self.destroying:
            questions.add(self.generated.questions())
            for hook in self.environment.hooks:
                questions.add(hook.questions(self.environment.inventory))
        questions.add({name: () for name in self.remembered if self.session.subject_of(name) in subjects})
        close_over(questions, self.session)
        for name, queries in questions.items():
            queries.update(self.environment.evidence.get(name, ()))
            self.session.claim(name, queries)
        observe(self.session, questions, self.remembered, self.cancel)
        # What only the look for orphans asks refuses no plan; a removal must know.
        for name in questions if self.destroying else needed:
            system = self.session.systems.get(name)
            if system is not None and isinstance(system.error, UsageError):
                self.usage.extend(system.error.diagnostics)
            if system is not None and isinstance(system.error, Refused):
                self.refusals.extend(
                    diagnostic for diagnostic in system.error.diagnostics if diagnostic not in self.refusals
                )

    def _ask_missing(self, resources: Iterable[Resource]) -> None:
        missing = {}
        for name, queries in Questions().add_resources(resources).items():
            self.session.claim(name, queries)
            if self.session.error_of([name]) is None and not self.session.has(name, queries):
                missing[name] = queries
        observe(self.session, missing, {}, self.cancel)

    # ------------------------------------------------------------ one step

    def _draft(self, state: StepState) -> _Draft:
        silence = self._silence(state.required)
        comes = isinstance(silence, AwayError) and silence.away.late and not self.destroying
        if state.role is None or (silence is not None and not comes):
            return _Draft()
        try:
            resources = self.expander.resources(state)
        except UsageError as error:
            self.usage.extend(error.diagnostics)
            return _Draft()
        except NotYet as error:
            return _Draft() if comes else _Draft(missing=error)
        except ProvisionError as error:
            return _Draft() if comes else _Draft(problem=error.diagnostics[0])
        return _Draft() if comes else _Draft(resources)  # what is not there yet wants nothing yet

    def _silence(self, systems: Iterable[str]) -> ProvisionError | None:
        """Return why the first of some systems gives no answers, or None when all do."""
        for name in systems:
            system = self.session.systems.get(name)
            if system is None:
                return ProvisionError(Diagnostic("SYSTEM_UNKNOWN", f"there is no system {name!r}"))
            if system.snapshot is None:
                return system.error or ProvisionError(Diagnostic("SYSTEM_SILENT", f"{name} was not asked"))
        return None

    def _step_plan(self, state: StepState, draft: _Draft, pending_seen: set[str]) -> StepPlan:
        if state.role is None:
            return StepPlan(state.step)
        systems = state.systems
        if draft.resources and not state.resources:  # a late step wants nothing yet
            systems = systems.union(resource.key.system for resource in draft.resources)
        creators = (self.alterations.creator(state, system) for system in sorted(systems))
        after = next(filter(None, creators), None) or self.alterations.altering(state, draft.resources)
        if after is not None:
            return self._late_plan(state, after)
        systems = systems.difference(state.optional)
        silence = self._silence(sorted(systems))  # the same cause in every plan of the same site
        if silence is not None:
            return self._silent_plan(state, silence)
        if draft.missing is not None:
            return self._missing_plan(state, draft.missing)
        if draft.problem is not None:
            return StepPlan(state.step, problem=draft.problem)
        return self._compared(state, pending_seen)

    def _missing_plan(self, state: StepState, missing: NotYet) -> StepPlan:
        """Return the plan of a step whose role lacks an answer: late while a step before it may bring it."""
        bringer = self.alterations.bringer(state, missing.system)
        if bringer is not None:
            return self._late_plan(state, bringer)
        if missing.silence is not None:
            return self._silent_plan(state, missing.silence)
        return StepPlan(state.step, problem=missing_answer(self.expander, state.step.id, missing))

    def _silent_plan(self, state: StepState, silence: ProvisionError) -> StepPlan:
        """Return the plan of a step of which a system gives no answers."""
        step = state.step
        if isinstance(silence, AwayError):
            if self.destroying:
                return StepPlan(step)  # what is not there needs no removal
            bringer = self.alterations.bringer(state, silence.system) or self.alterations.active(state)
            if silence.away.late and bringer is not None:
                return self._late_plan(state, bringer)
            return StepPlan(step, unreached=silence.away.reason, excused=silence.away.excused)
        diagnostic = silence.diagnostics[0]
        plan = StepPlan(step, unreached=diagnostic.summary)
        if diagnostic in self.reported:
            return plan
        self.reported.append(diagnostic)  # once, not for each step behind it
        return replace(plan, problem=diagnostic)

    def _late_plan(self, state: StepState, after: StepId) -> StepPlan:
        """Return the plan of a step that is planned again when it is reached, with what is known already."""
        missing = frozenset(
            system
            for system in self.session.systems
            if system in state.questions
            and (self.session.snapshot(system) is None or self.alterations.creator(state, system))
        )
        # A system that exists and is only silent may well have all of it.
        created = {system for system in missing if self.alterations.creator(state, system)}
        changes: list[PlannedChange] = []
        if created and not self.destroying:
            try:
                resources = self.expander.resources(state, without=missing)
            except ProvisionError:
                resources = ()  # it needs an answer
            changes = [
                PlannedChange(resource.key, creation)
                for resource in resources
                if resource.key.system in created
                and isinstance(resource, Creatable)
                and (creation := resource.creation())
            ]
        return StepPlan(
            state.step, tuple(change for change in changes if change.changes), late=f"after {after}"
        )

    def _compared(self, state: StepState, pending_seen: set[str]) -> StepPlan:
        changes: list[PlannedChange] = []
        problem: Diagnostic | None = None
        unchanged = 0
        step = state.step
        snapshots = {name: self.session.snapshot(name) for name in state.systems}
        for resource in state.resources:
            key = resource.key
            snapshot = snapshots[key.system]
            is_shared = not step.separate and self.desired.is_shared(key)
            if snapshot is None or (is_shared and self.desired.owner(key) != step.id):
                unchanged += 1
                continue
            differing = difference(resource, snapshot)
            if differing is None:
                unchanged += 1
                continue
            if isinstance(differing.remedy, Impossible) and not settles_without_action(differing.changes):
                problem = problem or differing.remedy.diagnostic
            changes.append(differing)
        for name in sorted(state.systems):
            snapshot = self.session.snapshot(name)
            # Its own subject's steps repay what a system owes; where there are none, who acts on it does.
            owner = self.session.subject_of(name)
            mine = owner == state.step.subject.name
            if not mine and owner in self.consents.subjects:
                continue
            if snapshot is None or name in pending_seen:
                continue
            if not mine and all(resource.key.system != name for resource in state.resources):
                continue
            pending_seen.add(name)
            changes += pending_changes([snapshot], destroying=self.destroying)
        return StepPlan(state.step, tuple(changes), unchanged, problem=problem)

    def _note_born(self, state: StepState) -> None:
        for change in state.plan.changes:
            # What may not be replaced is still what it was.
            if change.creates and self.consents.allows(change.key.system, change.risks):
                self.consents.born.add(change.creates)

    # ------------------------------------------------------------ the whole

    def _finished(self, states: Sequence[StepState]) -> Planned:
        order = ordered([state.step for state in states])
        by_id = {state.step.id: state for state in states}
        resources = [resource for state in states for resource in state.resources]
        warnings = list(self.orphans.warnings)
        inventory, snapshots = self.environment.inventory, self.session.snapshots()
        evidence = Evidence(inventory, snapshots, resources, destroying=self.destroying)
        for finding in self.environment.rules(evidence):
            (self.refusals if finding.severity is Severity.ERROR else warnings).append(finding)
        removed = self.destroying or self.options.prune
        plan = Plan(
            self.environment.name,
            tuple(by_id[step.id].plan for step in order),
            self._risks(states),
            tuple(self.refusals),
            tuple(warnings),
            () if removed else self.orphans.keys(),
        )
        return Planned(
            plan,
            {step.id: by_id[step.id] for step in order},
            self.desired,
            self.consents,
            self.expander,
            self.environment.home(inventory, snapshots),
            checked=frozenset(map(checked_key, snapshots.values())),
        )

    def _risks(self, states: Sequence[StepState]) -> tuple[ConsentNeed, ...]:
        effects = {
            (planned.key.system, effect): None
            for state in states
            for planned in state.plan.changes
            for effect in (*planned.effects, *planned.risks)
        }
        hooks = (risk for system, effect in effects for risk in self._hook_risks(system, effect))
        return ranked(
            ConsentNeed(system, effect, self.consents.of(system, effect))
            for system, effect in (*effects, *hooks)
        )

    def _hook_risks(self, system: str, effect: Effect) -> Iterator[tuple[str, Effect]]:
        """Yield what an effect costs on other systems, as far as these have answered."""
        inventory, subject = self.environment.inventory, self.consents.affected_subject(system, effect)
        for hook, targets in hook_targets(self.environment, self.consents, [(system, effect)]).items():
            questions = hook.questions(inventory)
            snapshots = self.session.basis(questions)
            if len(snapshots) < len(questions):
                continue
            context = Context(inventory, next(iter(targets.values())), snapshots, self.generated)
            away = hook.taken_away(targets, hook.readiness(context))
            if hook.is_excessive(inventory, away):
                yield system, Effect(hook.excess, subject)
            for other in questions:
                if not self.session.is_cut_off(other, {subject, *targets}):
                    yield from ((other, Effect(cls, name)) for name in away for cls in hook.risks)


@dataclass(frozen=True, slots=True)
class _Draft:
    """What a role says before other roles were heard."""

    resources: tuple[Resource, ...] = ()
    problem: Diagnostic | None = None
    missing: NotYet | None = None
