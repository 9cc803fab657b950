"""Diagnostics as text: what, where, evidence, what was left alone, what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from provision.report.style import ASCII, MIN_WIDTH, Glyphs, count, glyphs, printable, say, shorten
from provision.values.diagnostics import Diagnostic, Severity, Source

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

EVIDENCE_LINES = 12
SUBJECTS_SHOWN = 8
SUMMARIES_SHOWN = 3
"""Different sentences of one code that are shown without `full`."""
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}
_QUOTED = re.compile(r"`([^`\n]+)`")
_OPTION = re.compile(r"(--[a-z-]+) ")
_COMMAND = re.compile(r"[a-z][a-z0-9._/-]* ")
"""How a quoted command begins; `key: value` is a line for a file, and one word alone is a name."""


def print_diagnostics(console: Console, diagnostics: Iterable[Diagnostic], *, full: bool = False) -> None:
    """Print problems, worst first, those of one cause together, a blank line after each.

    Args:
        console: where to.
        diagnostics: all of them.
        full: all sentences of a warning that has many.
    """
    signs = glyphs(console.encoding)
    for group in grouped(diagnostics):
        for line in render(group, console.width, signs, full=full):
            console.print(line, soft_wrap=True)
        console.print()


def grouped(diagnostics: Iterable[Diagnostic]) -> list[tuple[Diagnostic, ...]]:
    """Return diagnostics grouped by cause, errors before warnings before notes, otherwise in their order.

    Warnings of one code are one group. Errors and notes are one only where everything but the subject is
    equal: each of them has to be corrected, or was asked for.
    """
    groups: dict[tuple[object, ...], list[Diagnostic]] = {}
    for diagnostic in diagnostics:
        cause: tuple[object, ...] = (diagnostic.severity, diagnostic.code)
        if diagnostic.severity is not Severity.WARNING:
            cause += (diagnostic.summary, diagnostic.evidence, diagnostic.source, diagnostic.untouched)
            cause += (diagnostic.remedy,)
        group = groups.setdefault(cause, [])
        if diagnostic not in group:
            group.append(diagnostic)
    ranks = list(Severity)
    return sorted(
        (tuple(group) for group in groups.values()), key=lambda group: ranks.index(group[0].severity)
    )


def render(
    group: Sequence[Diagnostic], width: int, signs: Glyphs = ASCII, *, full: bool = False
) -> list[Text]:
    """Return the lines of one problem that affects one or more subjects.

    Args:
        group: diagnostics of one cause, as `grouped` returns them.
        width: columns of the terminal.
        signs: characters that it can show.
        full: all sentences, however many.
    """
    from rich.text import Text  # noqa: PLC0415 - slow to import

    first = group[0]
    subjects = subject_names(group)
    heading = Text.assemble((f"{first.severity} {printable(first.code)}", _STYLES[first.severity]))
    names = wrap([subjects], width - 4)
    if len(heading.plain) + 2 + len(names[0]) <= width and len(names) == 1:
        lines = [Text.assemble(heading, (f"  {names[0]}" if subjects else "", "bold"))]
    else:
        lines = [heading, *(Text(f"    {line}", style="bold") for line in names)]
    summaries = list(dict.fromkeys(problem.summary for problem in group))
    shown = summaries if full else summaries[:SUMMARIES_SHOWN]
    for summary in shown:
        lines += [Text(f"  {line}") for line in wrap(printable_lines(summary), width - 2)]
    if len(summaries) > len(shown):
        hidden = count(len(summaries) - len(shown), "more message")
        lines.append(Text(f"  and {hidden} of this code", style="dim"))
    lines += [Text(f"  {line}", style="dim") for line in _places(group, width - 2, signs)]
    evidence = [printable(line) for text in first.evidence for line in text.splitlines()]
    if len(evidence) > EVIDENCE_LINES:
        hidden = count(len(evidence) - EVIDENCE_LINES, "earlier line")
        lines.append(Text(f"  | ({hidden} not shown)", style="dim"))
    for text in evidence[-EVIDENCE_LINES:]:
        lines += [Text(f"  | {line}", style="dim") for line in wrap([text], width - 4)]
    if first.untouched:
        lines += _labelled("left alone", [(first.untouched, False)], width)
    for remedy in dict.fromkeys(problem.remedy for problem in group[: len(shown)]):
        if remedy:
            lines += _labelled("next", remedy_parts(remedy), width)
    return lines


def print_sentences(console: Console, text: str) -> None:
    """Print a message of one or more sentences; commands quoted in it get lines of their own, unbroken."""
    for part, is_command in remedy_parts(text):
        if is_command:
            console.print(f"  {printable(part)}", soft_wrap=True)
        else:
            say(console, printable(part), indent=0)


def printable_lines(text: str) -> list[str]:
    """Return the lines of a text, each safe to print."""
    return [printable(line) for line in text.splitlines()] or [""]


def remedy_parts(text: str) -> list[tuple[str, bool]]:
    """Return a remedy as parts: sentences, and commands that are quoted in it by backticks.

    Each part says whether it is a command. Quoted names and lines for files stay in their sentence, without
    the backticks.
    """
    parts: list[tuple[str, bool]] = []
    sentence = ""
    end = 0
    for match in _QUOTED.finditer(text):
        sentence += text[end : match.start()]
        end = match.end()
        if _COMMAND.match(match[1]):
            parts += [(sentence, False), (match[1], True)]
            sentence = ""
        else:
            sentence += match[1]
    parts.append((sentence + text[end:], False))
    # Around a command that has a line of its own, the sentence's commas and parentheses say nothing.
    cleaned = [
        (part if is_command else part.lstrip(" ,;.)").rstrip(" ,;("), is_command)
        for part, is_command in parts
    ]
    return [(part, is_command) for part, is_command in cleaned if part.strip(": ")]


def _labelled(label: str, parts: Sequence[tuple[str, bool]], width: int) -> list[Text]:
    """Return a label and what it is about: sentences are wrapped, commands have whole lines."""
    from rich.text import Text  # noqa: PLC0415 - slow to import

    margin = len(label) + 4
    body: list[Text] = []
    for part, is_command in parts:
        if is_command:
            body.append(Text(f"  {printable(part)}", style="bold"))
        else:
            body += map(Text, wrap(printable_lines(part), width - margin))
    heading = Text(f"  {label}: ", style="bold")
    if parts[0][1]:  # a command alone: it begins on the next line, as all commands do
        return [Text(f"  {label}:", style="bold"), *(Text(" " * 4) + line for line in body)]
    return [Text.assemble(heading, body[0]), *(Text(" " * margin) + line for line in body[1:])]


def _places(group: Sequence[Diagnostic], width: int, signs: Glyphs) -> list[str]:
    """Return the first place in a file with its mark, and the line numbers of the others."""
    sources = list(dict.fromkeys(problem.source for problem in group if problem.source is not None))
    if not sources:
        return []
    first, *others = sources
    lines = mark(first, width, signs)
    if others:
        places = [
            str(source.line) if source.file == first.file else f"{printable(source.file)}:{source.line}"
            for source in others
        ]
        lines += wrap([f"also on line{'s' if others[1:] else ''} {_names(places)}"], width)
    return lines


def wrap(lines: Iterable[str], width: int) -> list[str]:
    """Return lines broken between words; a word longer than a line (a command, a path) stays whole."""
    import textwrap  # noqa: PLC0415 - only needed here

    result: list[str] = []
    for line in lines:
        result += textwrap.wrap(
            _OPTION.sub("\\1\N{NO-BREAK SPACE}", line),  # an option stays with its value
            max(MIN_WIDTH, width),
            break_long_words=False,
            break_on_hyphens=False,
            subsequent_indent=" " * (len(line) - len(line.lstrip())),
        ) or [""]
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in result] or [""]


def mark(source: Source, width: int, signs: Glyphs = ASCII) -> list[str]:
    """Return `file:line:column`, the line itself, and a mark under the place."""
    place = f"{printable(source.file)}:{source.line}:{source.column}"
    if not source.text:
        return [place]
    number = str(source.line)
    before = printable(source.text[: source.column - 1])
    room = max(MIN_WIDTH, width - len(number) - 3)
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


def subject_names(group: Iterable[Diagnostic]) -> str:
    """Return whom a problem affects: the first names, and how many more there are."""
    return _names(list(dict.fromkeys(printable(problem.subject) for problem in group if problem.subject)))


def _names(subjects: Sequence[str]) -> str:
    if len(subjects) <= SUBJECTS_SHOWN:
        return ", ".join(subjects)
    rest = len(subjects) - SUBJECTS_SHOWN
    return f"{', '.join(subjects[:SUBJECTS_SHOWN])} and {rest} more"
