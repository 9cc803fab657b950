"""From a playbook and an inventory to steps; from all desired states to one set without conflicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from provision.contracts.change import Key
from provision.contracts.resource import Mergeable, Resource
from provision.engine.graph import ordered
from provision.engine.model import Step, StepId
from provision.engine.world import Entry, Options, Playbook, World
from provision.inventory import Subject
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError

VERIFY = "verify"
_KEYS = frozenset({"role", "verify", "on", "after", "serial", "gate"})


def parse_playbook(data: Any, file: str) -> Playbook:
    """Return a playbook from its YAML as plain values.

    Raises:
        UsageError: unknown keys or wrong types, all at once.
    """
    problems: list[str] = []
    entries: list[Entry] = []
    if not isinstance(data, dict) or not isinstance(data.get("steps"), list):
        raise UsageError(
            Diagnostic("PLAYBOOK_WRONG", f"{file}: a playbook is a mapping with `name` and `steps`")
        )
    problems += [f"unknown key {key!r}" for key in data if key not in {"name", "description", "steps"}]
    for number, line in enumerate(data["steps"], 1):
        try:
            entries.append(_entry(line))
        except ValueError as error:
            problems.append(f"step {number}: {error}")
    known = {entry.role for entry in entries}
    problems += [
        f"{entry.role}: `after` names {each!r}, which is no step of this playbook"
        for entry in entries
        for each in entry.after
        if each not in known
    ]
    if problems:
        raise UsageError([Diagnostic("PLAYBOOK_WRONG", f"{file}: {each}") for each in problems])
    return Playbook(str(data.get("name", file)), tuple(entries), str(data.get("description", "")))


def _entry(line: Any) -> Entry:
    if not isinstance(line, dict):
        raise ValueError("expected { role: NAME, on: SELECTOR }")  # noqa: TRY004 - all problems are collected
    unknown = sorted(str(key) for key in line if key not in _KEYS)
    if unknown:
        raise ValueError(f"unknown key {', '.join(unknown)}; a step has {', '.join(sorted(_KEYS))}")
    if ("role" in line) == ("verify" in line):
        raise ValueError("expected either `role` or `verify`")
    serial = str(line.get("serial", 0))
    if not (serial.isascii() and serial.isdigit()):
        raise ValueError("`serial` is a whole number")
    gate = line.get("gate", "")
    if not isinstance(gate, str):
        raise ValueError("`gate` is a question")  # noqa: TRY004 - all problems are collected as one kind
    if "verify" in line:
        return Entry(VERIFY, (), _names(line, "after"), 0, gate)
    if not isinstance(line["role"], str) or "on" not in line:
        raise ValueError("`role` is a name and `on` a selector or a list of them")
    return Entry(str(line["role"]), _names(line, "on"), _names(line, "after"), int(serial), gate)


def _names(line: dict[str, Any], key: str) -> tuple[str, ...]:
    value = line.get(key, ())
    names = (value,) if isinstance(value, str) else tuple(value)
    if not all(isinstance(each, str) for each in names):
        raise ValueError(f"`{key}` is a name or a list of names")
    return tuple(str(each) for each in names)


def expand(world: World, options: Options) -> tuple[Step, ...]:
    """Return the steps in the order in which they would begin; a role with nothing declared yields none.

    Raises:
        UsageError: a target or step that does not exist, or a circle.
    """
    subjects = {
        subject.name: subject
        for entry in world.playbook.entries
        for on in entry.on
        for subject in world.select(on)
    }
    _check(options, subjects, world.playbook)
    builder = _Builder(world, options)
    for entry in world.playbook.entries:
        builder.add(entry)
    return ordered(builder.finished())


def _check(options: Options, subjects: dict[str, Subject], playbook: Playbook) -> None:
    roles = {entry.role for entry in playbook.entries}
    problems = [
        Diagnostic(
            "TARGET_UNKNOWN", f"there is no subject {each!r}", remedy=f"there are {', '.join(subjects)}"
        )
        for each in options.targets
        if each not in subjects
    ]
    problems += [
        Diagnostic(
            "STEP_UNKNOWN", f"there is no step {each!r}", remedy=f"there are {', '.join(sorted(roles))}"
        )
        for each in options.steps
        if each not in roles
    ]
    if problems:
        raise UsageError(problems)


@dataclass(slots=True)
class _Builder:
    world: World
    options: Options
    steps: dict[StepId, Step] = field(default_factory=dict)
    chains: dict[str, list[StepId]] = field(default_factory=dict)
    by_role: dict[str, list[StepId]] = field(default_factory=dict)
    verify: Entry | None = None

    def add(self, entry: Entry) -> None:
        if self.options.steps and entry.role not in self.options.steps:
            return
        if entry.role == VERIFY:
            self.verify = entry
            return
        role = self.world.roles.get(entry.role)
        if role is None:
            return
        chosen: dict[str, Subject] = {}
        for selector in entry.on:
            for subject in self.world.select(selector):
                if self.options.targets and subject.name not in self.options.targets:
                    continue
                if role.declared(self.world.inventory, subject):
                    chosen[subject.name] = subject
        before: list[StepId] = []
        group: list[StepId] = []
        for subject in chosen.values():
            if entry.serial and len(group) == entry.serial:
                before, group = group, []
            step = self._step(entry, subject, frozenset(before))
            group.append(step)

    def _step(self, entry: Entry, subject: Subject, before: frozenset[StepId]) -> StepId:
        chain = self.chains.setdefault(subject.name, [])
        after = set(before)
        for role in entry.after:
            after.update(self.by_role.get(role, ()))
        step = Step(
            StepId(entry.role, subject.name),
            subject,
            after=frozenset(after),
            needs=frozenset(chain[-1:]),
            gate=entry.gate,
        )
        self.steps[step.id] = step
        chain.append(step.id)
        self.by_role.setdefault(entry.role, []).append(step.id)
        return step.id

    def finished(self) -> list[Step]:
        """Return the steps with the edges that need all of them to be known."""
        found = [self._with_parents(step) for step in self.steps.values()]
        if self.verify is not None:
            everything = frozenset(self.steps)
            found.append(
                Step(
                    StepId(VERIFY, "all"), Subject("cluster", "all"), after=everything, gate=self.verify.gate
                )
            )
        return found

    def _with_parents(self, step: Step) -> Step:
        after, needs = set(step.after), set(step.needs)
        first = self.chains[step.subject.name][0] == step.id
        parents = self.world.parents(step.subject)
        if first:  # the rest of the chain follows by itself
            for parent in parents:
                (needs if parent.needed else after).update(self.chains.get(parent.name, ())[-1:])
        role = self.world.roles[step.id.role]
        near = {step.subject.name, *(parent.name for parent in parents)}
        for name in role.needs:
            needs.update(each for each in self.by_role.get(name, ()) if each.subject in near)
        for name in role.needs_all:
            needs.update(self.by_role.get(name, ()))
        needs.discard(step.id)
        return replace(step, after=frozenset(after - needs), needs=frozenset(needs))


def reversed_steps(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps with all edges turned round: what came last goes first."""
    needs: dict[StepId, set[StepId]] = {step.id: set() for step in steps}
    after: dict[StepId, set[StepId]] = {step.id: set() for step in steps}
    for step in steps:
        for each in step.needs:
            needs[each].add(step.id)
        for each in step.after:
            after[each].add(step.id)
    turned = [
        replace(step, after=frozenset(after[step.id]), needs=frozenset(needs[step.id]), gate="")
        for step in reversed(steps)
    ]
    return ordered(turned)


class ConflictError(UsageError):
    """Two roles want different things of one resource."""


@dataclass(slots=True)
class Desired:
    """All desired states of a run by key, with the steps that want them."""

    by_key: dict[Key, dict[StepId, Resource]] = field(default_factory=dict)

    def unite(self, step: StepId, resources: Iterable[Resource]) -> tuple[Key, ...]:
        """Take in what a step wants, in place of what it wanted before, and return its keys.

        Raises:
            ConflictError: two different desired states for one key, naming both roles.
        """
        found: dict[Key, Resource] = {}
        for resource in resources:
            key = resource.key
            held = found.get(key)
            found[key] = resource if held is None else _united(held, resource, step, step)
        for key, resource in found.items():
            wanted = self.by_key.setdefault(key, {})
            wanted[step] = resource
            if len(wanted) > 1:
                self.state(key)
        return tuple(found)

    def state(self, key: Key) -> Resource:
        """Return the desired state of a key, united from all steps that want it.

        Raises:
            ConflictError: as above.
        """
        (first, state), *others = self.by_key[key].items()
        for step, resource in others:
            if resource != state:
                state = _united(state, resource, first, step)
        return state

    def states(self, keys: Iterable[Key]) -> tuple[Resource, ...]:
        """Return the desired states of some keys."""
        return tuple(self.state(key) for key in keys)

    def owner(self, key: Key) -> StepId:
        """Return the step that named a key first: it reports the change."""
        return next(iter(self.by_key[key]))


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
