"""One resource, explained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from provision.contracts.change import Change
from provision.engine.explain import Explained
from provision.report.diff import field_line, is_text, text_diff
from provision.report.problems import mark
from provision.report.style import glyphs, printable, shorten

if TYPE_CHECKING:
    from rich.console import Console

ANSWER = 400
"""Columns of an answer; the rest is cut without `full`."""


def print_explained(console: Console, found: Explained, *, full: bool = False) -> None:
    """Print who declares a resource, what was asked and answered, what differs, and what mending it costs.

    Args:
        console: where to.
        found: what the engine knows.
        full: whole values and answers.
    """
    signs = glyphs(console.encoding)
    lines = [Text(printable(found.key), style="bold"), Text(f"  declared by {printable(found.step)}")]
    if found.source is not None:
        lines += [Text(f"  {each}", style="dim") for each in mark(found.source, console.width - 2, signs)]
    for question, answer in found.answers:
        limit = len(answer) if full else ANSWER
        lines.append(Text(f"  asked    {printable(question)}", style="dim"))
        lines.append(Text(f"  answered {shorten(printable(answer), limit, signs.ellipsis)}", style="dim"))
    if found.unknown:
        lines.append(Text(f"  unknown: {printable(found.unknown)}", style="yellow"))
    planned = found.planned
    if planned is None:
        lines.append(
            Text("  as declared" if found.answers else "  not asked", style="green" if found.answers else "")
        )
    else:
        lines.append(Text("  differs", style="bold yellow"))
        lines += _differences(planned.changes, console, full=full)
        costs = [*(f"needs {each}" for each in planned.risks), *(f"then {each}" for each in planned.effects)]
        lines += [Text(f"    {printable(each)}") for each in costs]
        if planned.by_hand is not None:
            lines += [Text(f"    by hand: {printable(each)}") for each in planned.by_hand.lines]
    for line in lines:
        console.print(line, soft_wrap=True)


def print_differences(console: Console, changes: Sequence[Change]) -> None:
    """Print field-level differences alone."""
    for line in _differences(changes, console, full=False):
        console.print(line, soft_wrap=True)


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
