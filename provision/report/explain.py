"""One resource, explained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from provision.contracts.change import Change
from provision.engine.model import PlannedChange
from provision.report.diff import field_line, is_text, text_diff
from provision.report.explained import Explained
from provision.report.problems import mark
from provision.report.style import glyphs, printable, say, shorten

if TYPE_CHECKING:
    from rich.console import Console

ANSWER = 400
"""Columns of an answer; the rest is cut without `full`."""


def print_explained(console: Console, resource: Explained, *, full: bool = False) -> None:
    """Print who declares a resource, what was found, what differs, and what the change costs.

    Args:
        console: where to.
        resource: what the engine knows of it.
        full: whole values and answers.
    """
    for line in _lines(console, resource, full=full):
        say(console, line)


def print_differences(console: Console, changes: Sequence[Change]) -> None:
    """Print field-level differences alone."""
    for line in _differences(changes, console, full=False):
        say(console, line)


def _lines(console: Console, resource: Explained, *, full: bool) -> Iterator[Text]:
    signs = glyphs(console.encoding)
    yield Text(printable(resource.key), style="bold")
    place = ", from this line of the inventory:" if resource.source is not None else ""
    yield Text(f"  The step {printable(resource.step)} declares it{place}")
    if resource.source is not None:
        yield from (
            Text(f"    {line}", style="dim") for line in mark(resource.source, console.width - 4, signs)
        )
    if not resource.answers and resource.planned is None:
        yield Text(f"  {printable(resource.key.system)} was not asked about it.")
        return
    if resource.answers:
        yield Text(f"  Found on {printable(resource.key.system)}:")
    for query, answer in resource.answers:
        shown = answer if full else shorten(answer, ANSWER, signs.ellipsis)
        yield Text(f"    {printable(query)}: {printable(shown)}", style="dim")
    if resource.unknown:
        yield Text(f"  Unknown: {printable(resource.unknown)}", style="yellow")
    if resource.planned is None:
        yield Text("  It is as declared. The next apply does not change it.", style="green")
    else:
        yield from _planned(console, resource.planned, full=full)


def _planned(console: Console, planned: PlannedChange, *, full: bool) -> Iterator[Text]:
    if planned.by_hand is not None:
        yield Text("  It differs. You must change it yourself:", style="bold yellow")
        yield from (Text(f"    {printable(line)}") for line in planned.by_hand.lines)
    elif planned.pending:
        yield Text("  It is as declared, but an earlier run did not finish its effects.", style="bold yellow")
    else:
        yield Text("  It differs. The next apply changes this:", style="bold yellow")
    yield from _differences(planned.changes, console, full=full)
    if planned.risks:
        yield Text("  The change needs your consent for:")
        yield from (Text(f"    {printable(risk)}: {risk.cls.meaning}") for risk in planned.risks)
    if planned.effects:
        yield Text("  After the change:")
        yield from (Text(f"    {printable(effect)}: {effect.cls.meaning}") for effect in planned.effects)


def _differences(changes: Sequence[Change], console: Console, *, full: bool) -> list[Text]:
    lines: list[Text] = []
    for change in changes:
        if not change.secret and (is_text(change.old) or is_text(change.new)):
            lines.append(Text(f"    {change.op} {printable(change.path)}"))
            lines += [Text(f"      {sign} {line}") for sign, line in text_diff(change, full=full)]
        else:
            text = field_line(change, console.width - 8, glyphs(console.encoding), full=full)
            lines.append(Text(f"    {change.op} {text}"))
    return lines
