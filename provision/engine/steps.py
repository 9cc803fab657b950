"""From a playbook and an inventory to steps; from all desired states to one set without conflicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from provision.contracts.change import Key
from provision.contracts.resource import Mergeable, Resource
from provision.contracts.role import Need, Role
from provision.engine.environment import Environment, Options
from provision.engine.graph import ordered
from provision.engine.model import Barrier, Checkpoint, Step, StepId
from provision.inventory import Inventory, Subject
from provision.inventory.playbook import VERIFY, Entry, Playbook
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError
from provision.values.outcomes import Outcome
from provision.values.suggestions import known_names

STOPPING = frozenset({Outcome.FAILED, Outcome.WAITING})
"""Outcomes that stop the rest of a group: what was not done for one is not done for the next either."""
GUARDED = "checkpoints"
"""The group of all steps with `verify: each`: what fails at one of them stops the later roles, too."""


def expand(environment: Environment, options: Options) -> tuple[Step, ...]:
    """Return the steps in the order in which they would begin; a role with nothing declared yields none.

    Raises:
        UsageError: a target or step that does not exist, or a circle.
    """
    subjects = {
        subject.name: subject
        for entry in environment.playbook.entries
        for selector in entry.on
        for subject in environment.select(selector)
    }
    _check(options, subjects, environment.playbook)
    builder = _Builder(environment, options)
    for entry in environment.playbook.entries:
        builder.add(entry)
    return ordered(builder.finished())


def _check(options: Options, subjects: dict[str, Subject], playbook: Playbook) -> None:
    roles = {entry.role for entry in playbook.entries}
    problems = [
        Diagnostic("TARGET_UNKNOWN", f"there is no subject {target!r}", remedy=known_names(target, subjects))
        for target in options.targets
        if target not in subjects
    ]
    problems += [
        Diagnostic("STEP_UNKNOWN", f"there is no step {step!r}", remedy=known_names(step, sorted(roles)))
        for step in options.steps
        if step not in roles
    ]
    if problems:
        raise UsageError(problems)


@dataclass(slots=True)
class _Builder:
    environment: Environment
    options: Options
    steps: dict[StepId, Step] = field(default_factory=dict)
    entries: dict[StepId, Entry] = field(default_factory=dict)
    chains: dict[str, list[StepId]] = field(default_factory=dict)
    by_role: dict[str, list[StepId]] = field(default_factory=dict)
    barriers: dict[tuple[str, int], Barrier] = field(default_factory=dict)
    checkpoints: dict[StepId, Step] = field(default_factory=dict)
    verify: Entry | None = None

    def add(self, entry: Entry) -> None:
        if not self.options.includes(entry.role):
            return
        if entry.role == VERIFY:
            self.verify = entry
            return
        role = self.environment.roles.get(entry.role)
        if role is None:
            return
        subjects = {
            subject.name: subject
            for selector in entry.on
            for subject in self.environment.select(selector)
            if self.options.includes(subject=subject.name)
            and role.declared(self.environment.inventory, subject)
        }
        self._add_steps(entry, list(subjects.values()))

    def _add_steps(self, entry: Entry, members: Sequence[Subject]) -> None:
        batch = entry.serial or max(len(members), 1)
        before: tuple[Barrier, ...] = ()
        if entry.verify_each and members:
            guarded = tuple(StepId(entry.role, subject.name) for subject in members)
            before = self._checkpoint(entry, f"before {entry.role}", guarded, is_before=True)
        for start in range(0, len(members), batch):
            ids = tuple(self._step(entry, subject, before) for subject in members[start : start + batch])
            before = (Barrier(ids),)
            if entry.verify_each:
                before = self._checkpoint(entry, f"after {entry.role} of {ids[0].subject}", ids)

    def _checkpoint(
        self, entry: Entry, name: str, guarded: tuple[StepId, ...], *, is_before: bool = False
    ) -> tuple[Barrier, ...]:
        """Add a verification, and return what steps behind it wait for."""
        earlier = tuple(self.checkpoints)
        barriers = [Barrier(guarded)] if not is_before else []
        if earlier:
            barriers.append(Barrier(earlier))
        step = Step(
            StepId(VERIFY, name),
            Subject("cluster", name),
            barriers=tuple(barriers),
            group=GUARDED,
            stopping=STOPPING,
            checkpoint=Checkpoint(guarded, is_before, entry.way_back),
        )
        self.checkpoints[step.id] = step
        return (Barrier((step.id,)),)

    def _step(self, entry: Entry, subject: Subject, before: tuple[Barrier, ...]) -> StepId:
        chain = self.chains.setdefault(subject.name, [])
        stopping: frozenset[Outcome] = frozenset()
        if entry.stop_on_failure:
            unreached_stops = self.environment.roles[entry.role].unreached_stops
            stopping = STOPPING | ({Outcome.UNREACHED} if unreached_stops else set())
        step = Step(
            StepId(entry.role, subject.name),
            subject,
            needs=frozenset(chain[-1:]),
            barriers=before,
            gate=entry.gate,
            group=(GUARDED if entry.verify_each else entry.role) if entry.stop_on_failure else "",
            stopping=stopping,
        )
        self.steps[step.id] = step
        self.entries[step.id] = entry
        chain.append(step.id)
        self.by_role.setdefault(entry.role, []).append(step.id)
        return step.id

    def finished(self) -> list[Step]:
        """Return the steps with the edges that need all of them to be known."""
        steps = [self._with_parents(step) for step in self.steps.values()]
        steps += self.checkpoints.values()
        if self.verify is not None:
            every = (*self.steps, *self.checkpoints)
            all_steps = (Barrier(every),) if every else ()
            verify = StepId(VERIFY, "all")
            steps.append(Step(verify, Subject("cluster", "all"), barriers=all_steps, gate=self.verify.gate))
        return steps

    def _with_parents(self, step: Step) -> Step:
        after, needs = set(step.after), set(step.needs)
        earlier = (role for role in self.entries[step.id].after if role in self.by_role)
        barriers = [*step.barriers, *(self._barrier(role, 0) for role in earlier)]
        parents = self.environment.parents(step.subject)
        if self.chains[step.subject.name][0] == step.id:  # the rest of the chain follows by itself
            alternatives: dict[str, list[StepId]] = {}
            for parent in parents:
                last = self.chains.get(parent.name, ())[-1:]
                if parent.any_of:
                    alternatives.setdefault(parent.any_of, []).extend(last)
                else:
                    (needs if parent.needed else after).update(last)
            barriers += [Barrier(tuple(steps), 1) for steps in alternatives.values() if steps]
        near = dict.fromkeys((step.subject.name, *(parent.name for parent in parents)))
        for need in _needs(self.environment.roles[step.id.role], self.environment.inventory, step.subject):
            if need.scope == "site":
                if need.role in self.by_role:
                    barriers.append(self._barrier(need.role, need.least(len(self.by_role[need.role]))))
                continue
            subjects = near if need.scope == "near" else (step.subject.name,)
            ids = [
                needed
                for name in subjects
                if (needed := StepId(need.role, name)) in self.steps and needed != step.id
            ]
            if need.count == "all":
                needs.update(ids)
            elif ids:
                barriers.append(Barrier(tuple(ids), need.least(len(ids))))
        return replace(step, after=frozenset(after - needs), needs=frozenset(needs), barriers=tuple(barriers))

    def _barrier(self, role: str, needed: int) -> Barrier:
        if (role, needed) not in self.barriers:
            self.barriers[role, needed] = Barrier(tuple(self.by_role[role]), needed)
        return self.barriers[role, needed]


def _needs(role: Role, inventory: Inventory, subject: Subject) -> Iterator[Need]:
    for need in role.needs if role.needs_of is None else role.needs_of(inventory, subject):
        yield Need(need) if isinstance(need, str) else need


class ConflictError(UsageError):
    """Two roles want different things of one resource."""


@dataclass(slots=True)
class Desired:
    """All desired states of a run by key, with the steps that want them."""

    _first: dict[Key, tuple[StepId, Resource]] = field(default_factory=dict)
    _others: dict[Key, dict[StepId, Resource]] = field(default_factory=dict)
    """Further wants by key; nearly all keys have none, and a site has many keys."""

    def unite(self, step: StepId, resources: Iterable[Resource]) -> tuple[Key, ...]:
        """Take in what a step wants, in place of what it wanted before, and return its keys.

        Raises:
            ConflictError: two different desired states for one key, naming both roles.
        """
        wants: dict[Key, Resource] = {}
        for resource in resources:
            key = resource.key
            held = wants.get(key)
            wants[key] = resource if held is None else _united(held, resource, step, step)
        for key, resource in wants.items():
            first = self._first.get(key)
            if first is None or first[0] == step:
                self._first[key] = step, resource
            else:
                self._others.setdefault(key, {})[step] = resource
            if key in self._others:
                self.state(key)
        return tuple(wants)

    def release(self, step: StepId, keys: Iterable[Key]) -> tuple[Key, ...]:
        """Drop keys that a step no longer wants, and return those among them that other steps want."""
        shared = []
        for key in keys:
            wants = [pair for pair in self._wants(key) if pair[0] != step]
            self._first.pop(key, None)
            self._others.pop(key, None)
            if wants:
                shared.append(key)
                self._first[key], *others = wants
                self._others.update({key: dict(others)} if others else {})
        return tuple(shared)

    def _wants(self, key: Key) -> list[tuple[StepId, Resource]]:
        first = [self._first[key]] if key in self._first else []
        return [*first, *self._others.get(key, {}).items()]

    def state(self, key: Key) -> Resource:
        """Return the desired state of a key, united from all steps that want it.

        Raises:
            ConflictError: as above.
        """
        first, state = self._first[key]
        for step, resource in self._others.get(key, {}).items():
            if resource != state:
                state = _united(state, resource, first, step)
        return state

    def unwanted(self, resources: Iterable[Resource]) -> tuple[Resource, ...]:
        """Return the resources whose keys no step wants."""
        return tuple(resource for resource in resources if resource.key not in self._first)

    def states(self, keys: Iterable[Key]) -> tuple[Resource, ...]:
        """Return the desired states of some keys."""
        return tuple(self.state(key) for key in keys)

    def is_shared(self, key: Key) -> bool:
        """Whether several steps want a key."""
        return key in self._others

    def owner(self, key: Key) -> StepId:
        """Return the step that named a key first: it reports the change."""
        return self._first[key][0]


def _united(first: Resource, second: Resource, step: StepId, other: StepId) -> Resource:
    merged: Resource | None = first.merge(second) if isinstance(first, Mergeable) else None
    if merged is None:
        both = (
            step.role if step == other else f"{step.role} ({step.subject}) and {other.role} ({other.subject})"
        )
        raise ConflictError(
            Diagnostic(
                "RESOURCE_CONFLICT",
                f"{both} want different things of {first.key}",
                subject=other.subject,
                source=second.source or first.source,
                untouched="nothing was touched",
                remedy="declare it in one place",
            )
        )
    return merged
