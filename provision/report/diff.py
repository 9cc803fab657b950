"""Before and after of one field: short by default, whole with `full`, secrets never."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping

from provision.contracts.change import Change, Op
from provision.report.style import Glyphs, count, printable, shorten

CONTEXT_LINES = 3
SHORT_DIFF_LINES = 20
SECRET = "(secret)"  # noqa: S105 - what is shown instead of one


def value_text(value: object) -> str:  # noqa: PLR0911 - one return a type reads best
    """Return a value as one line that a person reads."""
    if value is None:
        return "(none)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f"({count(len(value), 'byte')})"
    if isinstance(value, str):
        return printable(value) if value else '""'
    if isinstance(value, Mapping):
        return ", ".join(f"{printable(key)}={value_text(item)}" for key, item in value.items()) or "(empty)"
    if isinstance(value, Collection):
        items: Iterable[object] = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return ", ".join(value_text(item) for item in items) or "(empty)"
    return printable(value)


def is_text(value: object) -> bool:
    """Whether a value is text of several lines, shown as a diff."""
    return isinstance(value, str) and "\n" in value.rstrip("\n")


def field_line(change: Change, width: int, signs: Glyphs, *, full: bool = False) -> str:
    """Return `mode: 0644 → 0600` for a change whose values fit on a line.

    Args:
        change: what differs.
        width: columns for the line.
        signs: characters that the output can show.
        full: never shorten.
    """
    name = printable(change.path)
    if change.secret:
        shown = SECRET if change.op is Op.CREATE else f"{SECRET} {signs.arrow} {SECRET}, differs"
        return f"{name}: {shown}"
    old, new = value_text(_line(change.old)), value_text(_line(change.new))
    if old == new:  # they differ in what a line does not show
        old, new = value_text(change.old), value_text(change.new)
    only = _one_sided(change, old, new)
    if only is not None:
        text = f"{name}: {only}" if only else name
        return text if full else shorten(text, width, signs.ellipsis)
    delta = _delta(change.old, change.new)
    if delta and not full:
        return shorten(f"{name}: {delta}", width, signs.ellipsis)
    if not full:
        room = max(16, (width - len(name) - len(signs.arrow) - 4) // 2)
        old, new = _apart(old, new, room, signs.ellipsis)
    return f"{name}: {old} {signs.arrow} {new}"


def _line(value: object) -> object:
    """Return a value without the newline that ends most files of one line."""
    return value.removesuffix("\n") if isinstance(value, str) else value


def _delta(old: object, new: object) -> str:
    """Return what a list gains and loses; empty when that does not say it all (order, repeated items)."""
    kinds = (tuple, list, set, frozenset)
    if not isinstance(old, kinds) or not isinstance(new, kinds):
        return ""
    before, after = [value_text(item) for item in old], [value_text(item) for item in new]
    parts = [f"+{item}" for item in after if item not in before]
    parts += [f"-{item}" for item in before if item not in after]
    return ", ".join(parts)


def _one_sided(change: Change, old: str, new: str) -> str | None:
    """Return the one value that says it all, "" if even that is not needed; None when both are."""
    if change.op is Op.ATTENTION and change.old is None:
        return new  # the value is unknown, and `new` says why
    if change.op is Op.ATTENTION and change.new is None:
        return old
    if change.op is Op.CREATE and change.old is None:
        return "" if change.new is None else new
    if change.op is Op.DELETE and change.new is None:
        return "" if change.old is None else old
    return None


def _apart(old: str, new: str, room: int, ellipsis: str) -> tuple[str, str]:
    """Shorten two values so that the place where they differ can still be seen."""
    if len(old) <= room and len(new) <= room:
        return old, new
    same = 0
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    start = max(0, same - room // 3)
    if start > len(ellipsis):
        old, new = ellipsis + old[start:], ellipsis + new[start:]
    return shorten(old, room, ellipsis), shorten(new, room, ellipsis)


def text_diff(change: Change, *, full: bool = False) -> list[tuple[str, str]]:
    """Return the lines of a content change as (sign, line), sign one of `+`, `-`, space, `@`.

    Args:
        change: old and new are texts; None is the empty text. A secret one gives no line.
        full: with three lines of context and without a limit; else changed lines only, at most 20.
    """
    if change.secret:
        return []
    old = _lines(change.old)
    new = _lines(change.new)
    lines: list[tuple[str, str]] = []
    hunks = list(difflib.unified_diff(old, new, lineterm="", n=CONTEXT_LINES if full else 0))[2:]
    for raw in hunks:
        if raw.startswith("@@"):
            lines.append(("@", raw))
        else:
            lines.append((raw[:1], printable(raw[1:])))
    if full:
        return lines
    short = [line for line in lines if line[0] != "@"]
    hidden = len(short) - SHORT_DIFF_LINES
    if hidden > 1:
        more = f"{count(hidden, 'more changed line')} (--full shows all)"
        short = [*short[:SHORT_DIFF_LINES], ("@", more)]
    return short


def _lines(value: object) -> list[str]:
    return [] if value is None else str(value).splitlines()
