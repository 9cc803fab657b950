"""Units that people write: sizes of memory and disks, rates, percentages."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FACTORS = {"MiB": 1, "GiB": 1024, "TiB": 1024 * 1024}
_SIZE = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,6}))? ?([A-Za-z]+)?")
_NEAR = {
    "": "GiB",
    "m": "MiB",
    "mb": "MiB",
    "mib": "MiB",
    "g": "GiB",
    "gb": "GiB",
    "gib": "GiB",
    "t": "TiB",
    "tb": "TiB",
    "tib": "TiB",
}
_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?(GBps|MBps|Gbps|Mbps)")
_RATE_BITS = {"GBps": 8e9, "MBps": 8e6, "Gbps": 1e9, "Mbps": 1e6}
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,4})?) ?%")


def parse_size(text: str) -> int:
    """Return MiB for a size such as `768MiB`, `60GiB` or `1.5TiB`.

    Decimal units are refused, because disks are counted in GiB.

    Raises:
        ValueError: not such a size; the message names the nearest one.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size: write a number and MiB, GiB or TiB, like 60GiB")
    whole, fraction, unit = match[1], match[2], match[3] or ""
    number = whole if fraction is None else f"{whole}.{fraction}"
    factor = _FACTORS.get(unit)
    if factor is None:
        near = _NEAR.get(unit.lower())
        if near is None:
            raise ValueError(f"{text!r} has an unknown unit: write MiB, GiB or TiB")
        reason = "has no unit" if not unit else f"has the unknown unit {unit}"
        # Other tools count memory in MiB and disks in GiB, and write no unit.
        other = f"{number}MiB or " if not unit and int(whole) >= _FACTORS["GiB"] else ""
        raise ValueError(f"{text!r} {reason}: did you mean {other}{number}{near}?")
    size = int(whole) * factor
    if fraction is not None:
        part = int(fraction) * factor
        scale = 10 ** len(fraction)
        if part % scale:
            raise ValueError(f"{text!r} is not a whole number of MiB")
        size += part // scale
    return size


def format_size(mib: int) -> str:
    """Return the shortest exact text for a number of MiB, such as `60GiB`."""
    for unit in ("TiB", "GiB"):
        if mib and mib % _FACTORS[unit] == 0:
            return f"{mib // _FACTORS[unit]}{unit}"
    return f"{mib}MiB"


@dataclass(frozen=True, slots=True)
class Rate:
    """A data rate.

    Args:
        text: as a person wrote it (`280GBps`).
        bits_per_second: its value.
    """

    text: str
    bits_per_second: float

    def __str__(self) -> str:
        return self.text


def parse_rate(text: str) -> Rate:
    """Return the rate for `280GBps` (bytes) or `400Gbps` (bits).

    Raises:
        ValueError: not such a rate.
    """
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not a rate: write a number and GBps (bytes) or Gbps (bits), like 280GBps"
        )
    return Rate(text, float(match[1]) * _RATE_BITS[match[2]])


def parse_percent(text: str) -> float:
    """Return the fraction for a percentage: 0.9 for `90%`.

    Raises:
        ValueError: not a percentage from 0% to 100%.
    """
    match = _PERCENT.fullmatch(text)
    value = float(match[1]) / 100 if match is not None else -1.0
    if not 0 <= value <= 1:
        raise ValueError(f"{text!r} is not a percentage: write 0% to 100%, like 90%")
    return value
