"""Order among steps: cycles, topological order, ancestors."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from provision.engine.model import Step, StepId
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError


def predecessors(step: Step) -> frozenset[StepId]:
    """Return the steps that must have ended before this one begins."""
    return step.after | step.needs


def ordered(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps so that each comes after its predecessors; otherwise the given order is kept.

    Raises:
        UsageError: the steps wait for each other in a circle.
    """
    position = {step.id: index for index, step in enumerate(steps)}
    open_edges = {step.id: sum(each in position for each in predecessors(step)) for step in steps}
    followers: dict[StepId, list[StepId]] = {step.id: [] for step in steps}
    for step in steps:
        for each in predecessors(step):
            if each in position:
                followers[each].append(step.id)
    ready = [position[each] for each, count in open_edges.items() if count == 0]
    heapq.heapify(ready)
    found: list[Step] = []
    while ready:
        step = steps[heapq.heappop(ready)]
        found.append(step)
        for each in followers[step.id]:
            open_edges[each] -= 1
            if open_edges[each] == 0:
                heapq.heappush(ready, position[each])
    if len(found) != len(steps):
        circle = _circle({step.id: step for step in steps}, {each for each, n in open_edges.items() if n > 0})
        raise UsageError(
            Diagnostic(
                "STEPS_CIRCULAR",
                f"steps wait for each other: {' -> '.join(str(each) for each in circle)}",
                remedy="look at the `after:` keys of the playbook",
            )
        )
    return tuple(found)


def _circle(steps: Mapping[StepId, Step], among: set[StepId]) -> list[StepId]:
    """Return one circle, its first step repeated at the end."""
    path = [min(among)]
    while True:
        before = min(each for each in predecessors(steps[path[-1]]) if each in among)
        if before in path:
            return [*path[path.index(before) :], before][::-1]
        path.append(before)


def ancestors(steps: Sequence[Step]) -> dict[StepId, frozenset[StepId]]:
    """Return all direct and indirect predecessors of each step; `steps` must be in order."""
    found: dict[StepId, frozenset[StepId]] = {}
    for step in steps:
        direct = [each for each in predecessors(step) if each in found]
        found[step.id] = frozenset(direct).union(*(found[each] for each in direct))
    return found
