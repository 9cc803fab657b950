"""Order among steps: topological order, circles, and what must still end before a step begins."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from provision.engine.model import Barrier, Step, StepId
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError


def predecessors(step: Step) -> frozenset[StepId]:
    """Return all steps that must have ended before this one begins; as large as its barriers."""
    return (step.after | step.needs).union(*(barrier.steps for barrier in step.barriers))


def barriers_of(steps: Iterable[Step]) -> tuple[Barrier, ...]:
    """Return all barriers, each once."""
    return tuple(dict.fromkeys(barrier for step in steps for barrier in step.barriers))


def ordered(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps so that each comes after its predecessors; otherwise the given order is kept.

    Raises:
        UsageError: the steps wait for each other in a circle.
    """
    position = {step.id: index for index, step in enumerate(steps)}
    countdown = Countdown(steps)
    ready = [position[step] for step in countdown.ready()]
    heapq.heapify(ready)
    in_order: list[Step] = []
    while ready:
        step = steps[heapq.heappop(ready)]
        in_order.append(step)
        for follower in (*countdown.end(step.id), *countdown.settle(step.id)):
            heapq.heappush(ready, position[follower])
    if len(in_order) != len(steps):
        reached = {step.id for step in in_order}
        circle = _circle({step.id: step for step in steps if step.id not in reached})
        raise UsageError(
            Diagnostic(
                "STEPS_CIRCULAR",
                f"steps wait for each other: {' -> '.join(map(str, circle))}",
                remedy="look at the `after:` keys of the playbook",
            )
        )
    return tuple(in_order)


def _circle(steps: Mapping[StepId, Step]) -> list[StepId]:
    """Return one circle among steps that all wait, its first step repeated at the end."""
    path = [min(steps)]
    while True:
        before = min(step for step in predecessors(steps[path[-1]]) if step in steps)
        if before in path:
            return [*path[path.index(before) :], before][::-1]
        path.append(before)


class Countdown:
    """What must still end before each step may begin, kept up to date as steps end.

    A step ends in two moments: when it has acted (`end`), and when its outcome is certain, after the reboot
    that it owes (`settle`). The first is enough for later steps of its own subject, which may share that
    reboot; steps of other subjects wait for the second.

    Args:
        steps: all steps of the run; edges to others do not count.
    """

    def __init__(self, steps: Iterable[Step]) -> None:
        self._open: Counter[StepId] = Counter()  # direct predecessors and barriers
        self._near: dict[StepId, list[StepId]] = {}  # direct followers of the same subject
        self._far: dict[StepId, list[StepId]] = {}
        self._gates: dict[StepId, list[_Gate]] = {}
        by_id = {step.id: step for step in steps}
        gates = {barrier: _Gate(barrier, by_id) for barrier in barriers_of(by_id.values())}
        for gate in gates.values():
            for member in gate.members:
                self._gates.setdefault(member, []).append(gate)
        for step in by_id.values():
            for before in step.after | step.needs:
                if before in by_id:
                    self._open[step.id] += 1
                    followers = self._near if before.subject == step.id.subject else self._far
                    followers.setdefault(before, []).append(step.id)
            for barrier in step.barriers:
                if gates[barrier].wait(step.id):
                    self._open[step.id] += 1
        self._steps = tuple(by_id)

    def ready(self) -> list[StepId]:
        """Return the steps that wait for nothing."""
        return [step for step in self._steps if not self._open[step]]

    def end(self, step: StepId) -> list[StepId]:
        """Note that a step has acted, and return those that may begin now."""
        released = [follower for gate in self._gates.get(step, ()) for follower in gate.end(step)]
        return self._released((*self._near.pop(step, ()), *released))

    def settle(self, step: StepId) -> list[StepId]:
        """Note that the outcome of a step is certain, and return the steps that may begin now."""
        released = [follower for gate in self._gates.get(step, ()) for follower in gate.settle(step)]
        return self._released((*self._far.pop(step, ()), *released))

    def _released(self, steps: Iterable[StepId]) -> list[StepId]:
        ready = []
        for step in steps:
            self._open[step] -= 1
            if not self._open[step]:
                ready.append(step)
        return ready


class _Gate:
    """A barrier of which steps end: who waits is let through once, each subject as soon as it may."""

    def __init__(self, barrier: Barrier, known: Collection[StepId]) -> None:
        self.members = frozenset(step for step in barrier.steps if step in known)
        self._waiting: dict[str, list[StepId]] = {}  # by subject
        self._acting: set[StepId] = set(self.members)
        self._unsettled: set[StepId] = set(self.members)
        self._subjects = Counter(step.subject for step in self.members)  # of what is unsettled

    def wait(self, step: StepId) -> bool:
        """Let a step wait; False when there is nothing to wait for."""
        if not self.members:
            return False
        self._waiting.setdefault(step.subject, []).append(step)
        return True

    def end(self, step: StepId) -> list[StepId]:
        self._acting.discard(step)
        return self._released()

    def settle(self, step: StepId) -> list[StepId]:
        self._acting.discard(step)
        if step in self._unsettled:
            self._unsettled.discard(step)
            self._subjects[step.subject] -= 1
            if not self._subjects[step.subject]:
                del self._subjects[step.subject]
        return self._released()

    def _released(self) -> list[StepId]:
        if not self._unsettled:
            waiting, self._waiting = self._waiting, {}
            return [step for steps in waiting.values() for step in steps]
        if len(self._subjects) > 1:
            return []
        (subject,) = self._subjects  # all the others' outcomes are certain
        return [] if self._acting else self._waiting.pop(subject, [])


class Ancestry:
    """Finds steps that come before others, directly or not.

    Args:
        steps: all steps, in order.
    """

    def __init__(self, steps: Iterable[Step]) -> None:
        self._steps = tuple(steps)
        self._position = {step.id: position for position, step in enumerate(self._steps)}

    def nearest(self, step: StepId, candidates: Collection[StepId]) -> StepId | None:
        """Return the last of some steps that comes before a step, or None."""
        end = self._position[step]
        positions = {position for name in candidates if (position := self._position.get(name, end)) < end}
        if not positions:
            return None
        first = min(positions)  # what comes before a step stands before it: nothing earlier leads there
        open_positions = [-end]  # a heap: the last step first
        visited = {end}
        barriers: set[Barrier] = set()
        while open_positions:
            position = -heapq.heappop(open_positions)
            if position in positions:
                return self._steps[position].id
            current = self._steps[position]
            before = {*current.after, *current.needs}
            for barrier in current.barriers:
                if barrier not in barriers:
                    barriers.add(barrier)
                    before.update(barrier.steps)
            for name in before:
                earlier = self._position.get(name, -1)
                if earlier >= first and earlier not in visited:
                    visited.add(earlier)
                    heapq.heappush(open_positions, -earlier)
        return None


def narrowed(steps: Sequence[Step], kept: Collection[StepId]) -> tuple[Step, ...]:
    """Return the steps that are kept, whose edges lead through those left out; every edge is a need then.

    Args:
        steps: in order.
        kept: which of them.
    """
    # By step that is left out: what is reached through it.
    through: dict[StepId, tuple[frozenset[StepId], tuple[Barrier, ...]]] = {}
    barriers: dict[Barrier, tuple[Barrier, ...]] = {}

    def reached(direct: Iterable[StepId]) -> tuple[frozenset[StepId], tuple[Barrier, ...]]:
        earlier: set[StepId] = set()
        behind: dict[Barrier, None] = {}
        for step in direct:
            if step in kept:
                earlier.add(step)
            elif step in through:
                earlier |= through[step][0]
                behind.update(dict.fromkeys(through[step][1]))
        return frozenset(earlier), tuple(behind)

    def narrowed_barrier(barrier: Barrier) -> tuple[Barrier, ...]:
        if barrier not in barriers:
            members, behind = reached(barrier.steps)
            own = (Barrier(tuple(sorted(members)), len(members)),) if members else ()
            barriers[barrier] = (*own, *behind)
        return barriers[barrier]

    narrow = []
    for step in steps:
        needs, behind = reached(step.after | step.needs)
        behind += tuple(new for old in step.barriers for new in narrowed_barrier(old))
        mine = tuple(dict.fromkeys(behind))
        if step.id in kept:
            narrow.append(replace(step, after=frozenset(), needs=needs, barriers=mine))
        else:
            through[step.id] = needs, mine
    return tuple(narrow)


def reversed_steps(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps with all edges turned round: what came last goes first."""
    needs: dict[StepId, set[StepId]] = {step.id: set() for step in steps}
    after: dict[StepId, set[StepId]] = {step.id: set() for step in steps}
    behind: dict[Barrier, list[StepId]] = {}
    for step in steps:
        for before in step.needs & needs.keys():
            needs[before].add(step.id)
        for before in step.after & after.keys():
            after[before].add(step.id)
        for barrier in step.barriers:
            behind.setdefault(barrier, []).append(step.id)
    barriers: dict[StepId, list[Barrier]] = {}
    for barrier, followers in behind.items():
        turned = Barrier(tuple(followers), len(followers) if barrier.needed else 0)
        for step_id in barrier.steps:
            barriers.setdefault(step_id, []).append(turned)
    return ordered(
        [
            replace(
                step,
                after=frozenset(after[step.id]),
                needs=frozenset(needs[step.id]),
                barriers=tuple(barriers.get(step.id, ())),
                gate="",
                group="",
            )
            for step in reversed(steps)
        ]
    )
