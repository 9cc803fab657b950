"""The order of steps: as text, or in Graphviz's DOT language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provision.engine.graph import barriers_of
from provision.engine.model import Barrier, Step, StepId
from provision.report.style import printable

LARGE = 16
"""A barrier of more steps is shown as one thing: n steps behind n others would be n * n lines."""


def reduced(steps: Sequence[Step]) -> dict[StepId, tuple[StepId, ...]]:
    """Return for each step the steps that it waits for, without those that follow from the others.

    Args:
        steps: in an order in which they could begin; large barriers are left out.
    """
    known = {step.id for step in steps}
    above: dict[StepId, frozenset[StepId]] = {}
    closest: dict[StepId, tuple[StepId, ...]] = {}
    for step in steps:
        small = (barrier.steps for barrier in step.barriers if len(barrier.steps) <= LARGE)
        waits = (step.after | step.needs).union(*small) & known
        farther = frozenset[StepId]().union(*(above[other] for other in waits if other in above))
        above[step.id] = waits | farther
        closest[step.id] = tuple(sorted(waits - farther))
    return closest


def graph_text(steps: Sequence[Step]) -> str:
    """Return one line a step: what it is, and what it waits for."""
    waits = reduced(steps)
    widest = max((len(printable(step.id)) for step in steps), default=0)
    lines = []
    for step in steps:
        parts = [printable(other) + _note(step, other) for other in waits[step.id]]
        parts += [_named(barrier) for barrier in step.barriers if len(barrier.steps) > LARGE]
        text = f"after {', '.join(parts)}" if parts else "at once"
        gate = f"; asks: {printable(step.gate)}" if step.gate else ""
        lines.append(f"{printable(step.id):<{widest}}  {text}{gate}\n")
    return "".join(lines)


def _note(step: Step, other: StepId) -> str:
    if other in step.needs:
        return " (needed)"
    counts = [barrier for barrier in step.barriers if barrier.needed and other in barrier.steps]
    return f" ({_count(counts[0])})" if counts else ""


def _count(barrier: Barrier) -> str:
    whole = barrier.needed == len(barrier.steps)
    return "needed" if whole else f"{barrier.needed} of {len(barrier.steps)} needed"


def _named(barrier: Barrier) -> str:
    roles = " and ".join(dict.fromkeys(step.role for step in barrier.steps))
    note = f" ({_count(barrier)})" if barrier.needed else ""
    return printable(f"all {len(barrier.steps)} steps of {roles}") + note


def graph_dot(steps: Sequence[Step]) -> str:
    """Return the graph for `dot -Tsvg`: solid edges are needs, dashed ones only order."""
    waits = reduced(steps)
    lines = ["digraph provision {", "  rankdir=LR;", "  node [shape=box, fontname=sans];"]
    subjects: dict[str, list[StepId]] = {}
    for step in steps:
        subjects.setdefault(step.id.subject, []).append(step.id)
    for number, (subject, names) in enumerate(subjects.items()):
        lines.append(f"  subgraph cluster_{number} {{ label={_quoted(subject)};")
        lines += [f"    {_quoted(str(name))} [label={_quoted(name.role)}];" for name in names]
        lines.append("  }")
    barriers = [barrier for barrier in barriers_of(steps) if len(barrier.steps) > LARGE]
    points: Mapping[Barrier, str] = {barrier: f"barrier {n}" for n, barrier in enumerate(barriers)}
    for barrier, point in points.items():
        lines.append(f"  {_quoted(point)} [shape=point, xlabel={_quoted(_named(barrier))}];")
        lines += [_edge(str(step), point, solid=bool(barrier.needed)) for step in barrier.steps]
    for step in steps:
        for other in waits[step.id]:
            lines.append(_edge(str(other), str(step.id), solid=bool(_note(step, other))))
        for barrier in step.barriers:
            if barrier in points:
                lines.append(_edge(points[barrier], str(step.id), solid=bool(barrier.needed)))
    return "\n".join([*lines, "}", ""])


def _edge(before: str, after: str, *, solid: bool) -> str:
    return f"  {_quoted(before)} -> {_quoted(after)}{'' if solid else ' [style=dashed]'};"


def _quoted(text: str) -> str:
    escaped = printable(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
