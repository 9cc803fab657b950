"""Snapshots of a datastore as text: one line each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from provision.report.table import print_table

if TYPE_CHECKING:
    from rich.console import Console

HEADS = ("server", "snapshot", "age", "size", "token")
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))
_STEP = 1024


def print_snapshots(console: Console, rows: Iterable[tuple[str, str, float, int, bool]]) -> None:
    """Print server, file, age in seconds, bytes, and whether a former token is needed."""
    print_table(
        console,
        HEADS,
        [
            ((server, name, age_text(age), size_text(size), "former" if former else "present"), ())
            for server, name, age, size, former in rows
        ],
    )


def age_text(seconds: float) -> str:
    """Return an age in its largest unit."""
    whole = int(seconds)
    return next((f"{whole // unit} {name}" for unit, name in _UNITS if whole >= unit), f"{whole} s")


def size_text(size: int) -> str:
    """Return bytes in a unit with at most four digits."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if value < _STEP:
            break
        value, unit = value / _STEP, larger
    return f"{value:.0f} {unit}"
