"""The order of steps: as text, or in Graphviz's DOT language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from provision.engine.model import Step, StepId
from provision.report.style import printable


def reduced(steps: Sequence[Step]) -> dict[StepId, tuple[StepId, ...]]:
    """Return for each step the steps that it waits for, without those that follow from the others.

    Args:
        steps: in an order in which they could begin.
    """
    chosen = {each.id for each in steps}
    waits = {each.id: (each.after | each.needs) & chosen for each in steps}
    above: dict[StepId, frozenset[StepId]] = {}
    for each in steps:
        above[each.id] = frozenset().union(*({one} | above.get(one, frozenset()) for one in waits[each.id]))
    return {name: tuple(sorted(_closest(found, above))) for name, found in waits.items()}


def _closest(found: Iterable[StepId], above: Mapping[StepId, frozenset[StepId]]) -> list[StepId]:
    every = list(found)
    return [one for one in every if not any(one in above.get(other, frozenset()) for other in every)]


def graph_text(steps: Sequence[Step]) -> str:
    """Return one line a step: what it is, and what it waits for."""
    waits = reduced(steps)
    widest = max((len(printable(each.id)) for each in steps), default=0)
    lines = []
    for each in steps:
        parts = [_wait(one, needed=one in each.needs) for one in waits[each.id]]
        text = f"after {', '.join(parts)}" if parts else "at once"
        gate = f"; asks: {printable(each.gate)}" if each.gate else ""
        lines.append(f"{printable(each.id):<{widest}}  {text}{gate}\n")
    return "".join(lines)


def _wait(step: StepId, *, needed: bool) -> str:
    return f"{printable(step)} (needed)" if needed else printable(step)


def graph_dot(steps: Sequence[Step]) -> str:
    """Return the graph for `dot -Tsvg`: solid edges are needs, dashed ones only order."""
    waits = reduced(steps)
    lines = ["digraph provision {", "  rankdir=LR;", "  node [shape=box, fontname=sans];"]
    subjects: dict[str, list[StepId]] = {}
    for each in steps:
        subjects.setdefault(each.id.subject, []).append(each.id)
    for number, (subject, names) in enumerate(subjects.items()):
        lines.append(f"  subgraph cluster_{number} {{ label={_quoted(subject)};")
        lines += [f"    {_quoted(str(name))} [label={_quoted(name.role)}];" for name in names]
        lines.append("  }")
    for each in steps:
        for one in waits[each.id]:
            style = "" if one in each.needs else " [style=dashed]"
            lines.append(f"  {_quoted(str(one))} -> {_quoted(str(each.id))}{style};")
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    escaped = printable(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
