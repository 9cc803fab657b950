"""The status of a site as text: one line a subject, then the totals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from provision.report.style import count, printable, say
from provision.report.subject_status import State, SubjectStatus
from provision.report.table import print_table

if TYPE_CHECKING:
    from rich.console import Console

HEADS = ("subject", "state", "drift")
_NAMED = 3
"""Resources of a subject that are named."""


def print_status(console: Console, rows: Sequence[SubjectStatus], orphans: Sequence[str]) -> None:
    """Print what is up and what drifts.

    Args:
        console: where to.
        rows: one a subject.
        orphans: what left the inventory and still exists.
    """
    print_table(console, HEADS, [((row.subject, str(row.state), _drift(row)), ()) for row in rows])
    if orphans:
        say(console, f"No longer in the inventory: {', '.join(map(printable, orphans))}", "yellow")
    up = sum(row.state is State.UP for row in rows)
    drifting = sum(bool(row.drift) for row in rows)
    open_rows = sum(bool(row.open_steps or row.problem) for row in rows)
    text = f"{up} of {count(len(rows), 'subject')} up, {drifting} with drift"
    if open_rows:
        text += f", {open_rows} not fully compared"
    say(console, f"{text}.", "bold")


def _drift(row: SubjectStatus) -> str:
    parts = []
    if row.drift:
        names = ", ".join(f"{change.key.kind} {change.key.name}" for change in row.drift[:_NAMED])
        more = f" and {len(row.drift) - _NAMED} more" if len(row.drift) > _NAMED else ""
        parts.append(f"{count(len(row.drift), 'resource')}: {names}{more}")
    if row.open_steps:
        parts.append(f"{count(row.open_steps, 'step')} not known")
    parts += [text for text in (row.reason, row.problem) if text]
    if parts:
        return "; ".join(parts)
    return "-" if row.state is State.NOT_ASKED else "none"
