"""Output of `ib_write_bw` and its siblings of perftest.

`MB` is 2^20 bytes there and `Gb` is 10^9 bits (`format_factor` in its source).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from provision.contracts.query import Unknown
from provision.values.numbers import is_number

_UNITS = {"Gb/sec": 1.0, "MB/sec": 2**20 * 8 / 1e9}
_HEADER = re.compile(
    r"(?m)^[ \t]*#bytes[ \t]+#iterations[ \t]+(?:BW peak\[[^\]]*\][ \t]+)?BW average\[([^\]]+)\].*$"
)
_FIELD = re.compile(r"(?m)(?:^|[ \t])(Device|Link type|GID index|Transport type)[ \t]*:[ \t]*(\S+)")
_NUMBER = r"-?(?:[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?|nan|inf)"
_ROW = re.compile(
    rf"[ \t]*([0-9]{{1,19}})[ \t]+([0-9]{{1,19}})[ \t]+({_NUMBER})[ \t]+({_NUMBER})(?:[ \t].*)?"
)
_RULE = re.compile(r"[ \t]*-{20,}[ \t]*")
_GPU = re.compile(r"(?m)^allocated (?:GPU|device) (?:buffer )?address|^allocated GPU buffer address")
_CARD = re.compile(r"device name = \[([^\]]+)\]")
_FAULTS = (
    "Couldn't",
    "Unable to",
    "unrecognized option",
    "cannot be used without CUDA",
    "Failed status",
    "Failed to",
    "Completion with error",
    "Parser function exited",
    "doesn't exist",
    "not found",
)
"""How perftest begins or words its faults; the first such line is the reason."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One row: messages of a size.

    Args:
        size: bytes of a message.
        iterations: how many there were.
        gbits: average rate in 10^9 bits a second.
    """

    size: int
    iterations: int
    gbits: float

    @property
    def sent(self) -> int:
        """Bytes that were written."""
        return self.size * self.iterations


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """What a client printed.

    Args:
        device: RDMA device that it used.
        link: `Ethernet` or `IB`.
        gid_index: entry that it used; None for a device without.
        card: name of the GPU whose memory was written; empty for host memory.
        rows: by message size.
    """

    device: str
    link: str
    gid_index: int | None
    card: str
    rows: tuple[Transfer, ...]

    @property
    def best(self) -> Transfer:
        """The row with the highest rate."""
        return max(self.rows, key=lambda row: row.gbits)

    @property
    def sent(self) -> int:
        """Bytes that were written in all."""
        return sum(row.sent for row in self.rows)


def parse_bandwidth(text: str) -> Bandwidth | Unknown:
    """Return what `ib_write_bw` printed; Unknown, with its own words, where no whole table is in it."""
    header = _HEADER.search(text)
    if header is None:
        return Unknown(_reason(text) or "ib_write_bw printed no table")
    if header[1] not in _UNITS:
        return Unknown(f"ib_write_bw printed a rate in {header[1]}")
    rows = _rows(text[header.end() :], _UNITS[header[1]])
    if isinstance(rows, Unknown):
        return Unknown(_reason(text) or rows.reason)
    fields = dict(_FIELD.findall(text[: header.start()]))
    if "Device" not in fields or "Link type" not in fields:
        return Unknown("ib_write_bw does not name its device")
    index = fields.get("GID index", "")
    card = _CARD.search(text)
    return Bandwidth(
        fields["Device"],
        fields["Link type"],
        int(index) if is_number(index) else None,
        (card[1] if card is not None else "a GPU") if _GPU.search(text) else "",
        rows,
    )


def _rows(text: str, unit: float) -> tuple[Transfer, ...] | Unknown:
    """Return the rows up to the line that ends the table."""
    rows: list[Transfer] = []
    for line in text.splitlines()[1:]:
        row = _ROW.fullmatch(line)
        if _RULE.fullmatch(line):
            break
        # Warnings stand between rows; a line of digits that is no row is a damaged one.
        if row is not None:
            rows.append(Transfer(int(row[1]), int(row[2]), float(row[4]) * unit))
        elif re.match(r"[ \t]*[0-9]", line):
            return Unknown(f"ib_write_bw printed a row that is not whole: {line.strip()[:80]}")
    else:
        return Unknown("the table of ib_write_bw has no end")
    # Overflows gave negative rates (perftest#82), and a test that ends at once a rate of nothing.
    if not rows or not all(math.isfinite(row.gbits) and row.gbits > 0 for row in rows):
        return Unknown("ib_write_bw printed no rate")
    return tuple(rows)


def _reason(text: str) -> str:
    lines = (line.strip() for line in text.splitlines())
    return next((line[:160] for line in lines if any(fault in line for fault in _FAULTS)), "")
