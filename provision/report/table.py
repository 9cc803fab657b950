"""Rows of text in columns, with remarks below a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from provision.report.style import printable, say

if TYPE_CHECKING:
    from rich.console import Console

Row = tuple[Sequence[str], Sequence[str]]
"""The cells of a row, and its remarks."""


def print_table(console: Console, heads: Sequence[str], rows: Sequence[Row]) -> None:
    """Print a table; its last column may be longer than the line.

    Args:
        console: where to.
        heads: names of the columns.
        rows: cells and remarks.
    """
    lines = [tuple(map(printable, cells)) for cells in (heads, *(cells for cells, _ in rows))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    remarks = [(), *(remarks for _, remarks in rows)]
    for number, (cells, below) in enumerate(zip(lines, remarks, strict=True)):
        line = "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()
        say(console, line, "" if number else "bold", indent=widths[0] + 2)
        for remark in below:
            say(console, " " * (widths[0] + 2) + printable(remark), "dim")
