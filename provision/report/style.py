"""How text reaches a terminal: width, colours, characters it can show, and nothing that it would obey."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

PLAIN_WIDTH = 110
"""Columns where there is no terminal to ask."""
MIN_WIDTH = 20
"""Columns that a line has at least, however narrow the terminal is."""
_WORD = re.compile(r"--[a-z-]+ \S+|\S+")
"""What is not broken: a word, or an option with its value."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The few characters beyond ASCII, with their replacements for other encodings."""

    arrow: str = "→"
    ellipsis: str = "…"


ASCII = Glyphs(arrow="->", ellipsis="...")
UNICODE = Glyphs()


def glyphs(encoding: str | None) -> Glyphs:
    """Return the characters that an output encoding can carry."""
    return UNICODE if (encoding or "").lower().replace("-", "").startswith("utf") else ASCII


def make_console(stream: TextIO | None = None, *, width: int | None = None) -> Console:
    """Return a console that prints text as it is: no markup, no guessing, colours only on a terminal.

    `soft_wrap` of the console says that nobody has a width in mind, as in a log file: `say` breaks no line.

    Args:
        stream: where to; standard output if None.
        width: columns; by default those of the terminal, or 110 without one.
    """
    # `rich` honours NO_COLOR, FORCE_COLOR, TERM=dumb and COLUMNS by itself.
    from rich.console import Console  # noqa: PLC0415 - slow to import, and --help must not wait for it

    stream = sys.stdout if stream is None else stream
    console = Console(file=stream, width=width, markup=False, emoji=False, highlight=False, soft_wrap=False)
    if width is None and not console.is_terminal and not os.environ.get("COLUMNS"):
        console.width = PLAIN_WIDTH
        console.soft_wrap = True
    return console


def say(console: Console, text: str | Text, style: str = "", *, indent: int | None = None) -> None:
    """Print one paragraph, broken between words only, later lines indented.

    Args:
        console: where to.
        text: without control characters (see `printable`).
        style: of a text that has none.
        indent: columns before the second and later lines; two more than the first line has if None.
    """
    for line in fold(console, text, style, indent=indent):
        console.print(line, soft_wrap=True)


def fold(console: Console, text: str | Text, style: str = "", *, indent: int | None = None) -> list[Text]:
    """Return the lines of a paragraph, as `say` prints them; a word longer than a line stays whole."""
    from rich.text import Text  # noqa: PLC0415 - slow to import

    whole = Text(text, style=style) if isinstance(text, str) else text
    if console.soft_wrap or len(whole.plain) <= console.width:
        return [whole]
    if indent is None:
        indent = len(whole.plain) - len(whole.plain.lstrip()) + 2
    room = max(MIN_WIDTH, console.width - indent)
    breaks, start, limit = [], 0, console.width
    for match in _WORD.finditer(whole.plain):
        if match.end() - start > limit and match.start() > start:
            breaks.append(match.start())
            start, limit = match.start(), room
    first, *rest = whole.divide(breaks)
    lines = [first, *(Text(" " * indent, style=whole.style) + line for line in rest)]
    for line in lines:
        line.rstrip()
    return lines


def printable(text: object) -> str:
    """Return text without anything that a terminal would obey: control characters become escapes.

    Output of hosts is shown to people; an escape sequence in it must not move their cursor or hide a line.
    """
    return "".join(
        char if char.isprintable() else "    " if char == "\t" else _escape(char) for char in str(text)
    )


def _escape(character: str) -> str:
    number = ord(character)
    if character == "\n":
        return "\\n"
    return f"\\x{number:02x}" if number <= 0xFF else f"\\u{number:04x}"  # noqa: PLR2004 - one byte


def shorten(text: str, width: int, ellipsis: str = "…") -> str:
    """Return text in at most `width` columns, its end replaced by an ellipsis if needed."""
    if len(text) <= width:
        return text
    return text[: max(0, width - len(ellipsis))] + ellipsis


def duration(seconds: float) -> str:
    """Return a time as people say it: `0.4 s`, `42 s`, `6 min`, `6 min 05 s`, `2 h 03 min`."""
    seconds = max(0.0, seconds)  # a clock may be set back meanwhile
    if seconds < 10:  # noqa: PLR2004 - below ten seconds the tenths matter
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004 - a minute
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:  # noqa: PLR2004 - an hour
        return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def ticking(seconds: float) -> str:
    """Return a time that a person watches: it moves with every second: `0:07`, `6:05`, `2:03:00`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def roughly(seconds: float) -> str:
    """Return a time without false precision: `6 min`, `40 s`."""
    if round(seconds) < 60:  # noqa: PLR2004 - a minute
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else duration(minutes * 60.0)  # noqa: PLR2004 - an hour


def count(number: int, noun: str, plural: str = "") -> str:
    """Return `1 change`, `2 changes`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
