"""Output of rping(1): how many times data went there and back."""

from __future__ import annotations

import re
from dataclasses import dataclass

from provision.contracts.query import Unknown

_PING = re.compile(r"(?m)^(?:server )?ping data: rdma-ping-([0-9]{1,19}): ")
# Printed where a connection ends as it should, too: they are no fault.
_HARMLESS = re.compile(
    r"DISCONNECT EVENT|wait for RDMA_READ_ADV state (?:10|9)|^(?:server )?ping data: |^verbose$"
)


@dataclass(frozen=True, slots=True)
class Rping:
    """What one side of rping printed.

    Args:
        iterations: how many pings came back, counted from 0 without a gap.
        complaint: the first line that is neither a ping nor the end of a connection; empty for none.
    """

    iterations: int
    complaint: str = ""


def parse_rping(text: str) -> Rping | Unknown:
    """Return what a side with `-v` printed; Unknown for nothing at all, or where a ping is missing."""
    numbers = [int(number) for number in _PING.findall(text)]
    rows = [line.strip() for line in text.splitlines() if line.strip()]
    complaint = next((row for row in rows if not _HARMLESS.search(row)), "")
    if not rows:
        return Unknown("rping printed nothing")
    if numbers != list(range(len(numbers))):
        return Unknown(f"the pings of rping are not whole: {', '.join(map(str, numbers[:12]))}")
    return Rping(len(numbers), complaint)
