"""Diagnostics as text: what, where, evidence, what was left alone, what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from provision.report.style import ASCII, Glyphs, count, glyphs, printable, shorten
from provision.values.diagnostics import Diagnostic, Severity, Source

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

EVIDENCE_LINES = 12
SUBJECTS_SHOWN = 8
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}


def print_diagnostics(console: Console, diagnostics: Iterable[Diagnostic]) -> None:
    """Print problems, worst first, equal ones of several subjects together, a blank line after each."""
    signs = glyphs(console.encoding)
    for group in grouped(diagnostics):
        for line in render(group, console.width, signs):
            console.print(line, soft_wrap=True)
        console.print()


def grouped(diagnostics: Iterable[Diagnostic]) -> list[tuple[Diagnostic, ...]]:
    """Return diagnostics grouped by cause: same code, words, evidence and remedy, other subjects.

    Errors come before warnings, warnings before notes; within these the order stays.
    """
    groups: dict[tuple[object, ...], list[Diagnostic]] = {}
    for each in diagnostics:
        cause = (
            each.severity,
            each.code,
            each.summary,
            each.evidence,
            each.source,
            each.untouched,
            each.remedy,
        )
        same = groups.setdefault(cause, [])
        if each not in same:
            same.append(each)
    ranks = list(Severity)
    return sorted(
        (tuple(group) for group in groups.values()), key=lambda group: ranks.index(group[0].severity)
    )


def render(group: Sequence[Diagnostic], width: int, signs: Glyphs = ASCII) -> list[Text]:
    """Return the lines of one problem that hits one or more subjects.

    Args:
        group: equal diagnostics that differ in their subject at most.
        width: columns of the terminal.
        signs: characters that it can show.
    """
    from rich.text import Text  # noqa: PLC0415 - slow to import

    first = group[0]
    subjects = [printable(each.subject) for each in group if each.subject]
    head = Text.assemble(
        (f"{first.severity} {printable(first.code)}", _STYLES[first.severity]),
        (f"  {_names(subjects)}" if subjects else "", "bold"),
    )
    lines = [head, *(Text(f"  {each}") for each in wrap(printable_lines(first.summary), width - 2))]
    if first.source is not None:
        lines += [Text(f"  {each}", style="dim") for each in mark(first.source, width - 2, signs)]
    evidence = [printable(line) for text in first.evidence for line in text.splitlines()]
    if len(evidence) > EVIDENCE_LINES:
        hidden = len(evidence) - EVIDENCE_LINES
        lines.append(Text(f"  | ({count(hidden, 'line')} more above)", style="dim"))
    lines += [Text(f"  | {each}", style="dim") for each in evidence[-EVIDENCE_LINES:]]
    for label, value in (("left alone", first.untouched), ("next", first.remedy)):
        if value:
            lines += _labelled(label, value, width)
    return lines


def printable_lines(text: str) -> list[str]:
    """Return the lines of a text, each safe to print."""
    return [printable(line) for line in text.splitlines()] or [""]


def _labelled(label: str, value: str, width: int) -> list[Text]:
    from rich.text import Text  # noqa: PLC0415 - slow to import

    margin = len(label) + 4
    body = wrap(printable_lines(value), width - margin)
    lines = [Text.assemble((f"  {label}: ", "bold"), body[0])]
    return lines + [Text(" " * margin + each) for each in body[1:]]


def wrap(lines: Iterable[str], width: int) -> list[str]:
    """Return lines broken between words; a word longer than a line (a command, a path) stays whole."""
    import textwrap  # noqa: PLC0415 - only needed here

    result: list[str] = []
    for line in lines:
        result += textwrap.wrap(
            line,
            max(20, width),
            break_long_words=False,
            break_on_hyphens=False,
            subsequent_indent=" " * (len(line) - len(line.lstrip())),
        ) or [""]
    return result or [""]


def mark(source: Source, width: int, signs: Glyphs = ASCII) -> list[str]:
    """Return `file:line:column`, the line itself, and a mark under the place."""
    place = f"{printable(source.file)}:{source.line}:{source.column}"
    if not source.text:
        return [place]
    number = str(source.line)
    before = printable(source.text[: source.column - 1])
    room = max(20, width - len(number) - 3)
    text = printable(source.text)
    start = 0
    if len(before) + source.width > room:  # keep the marked place on the screen
        start = max(0, len(before) - room // 3)
    shown = shorten(text[start:], room, signs.ellipsis)
    if start:
        shown = signs.ellipsis + shown[len(signs.ellipsis) :]
    marks = min(max(1, source.width), max(1, room - (len(before) - start)))
    return [
        place,
        f"{number} | {shown}",
        f"{' ' * len(number)} | {' ' * (len(before) - start)}{'^' * marks}",
    ]


def _names(subjects: Sequence[str]) -> str:
    if len(subjects) <= SUBJECTS_SHOWN:
        return ", ".join(subjects)
    rest = len(subjects) - SUBJECTS_SHOWN
    return f"{', '.join(subjects[:SUBJECTS_SHOWN])} and {rest} more"
