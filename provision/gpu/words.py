"""Tables of words: what the driver says instead of a number, and what an Xid is about.

Data alone, so that facts and checks may both read it. Sources: outputs of nvidia-smi(1) in public reports,
and the Xid catalogue of NVIDIA's GPU deployment documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Meaning(Enum):
    """What a word in the place of a value means."""

    NOT_APPLICABLE = "does not apply"
    BROKEN = "cannot be read"
    UNKNOWN = "unknown"


WORDS: Mapping[str, Meaning] = {
    "n/a": Meaning.NOT_APPLICABLE,
    "[n/a]": Meaning.NOT_APPLICABLE,
    "not supported": Meaning.NOT_APPLICABLE,
    "[not supported]": Meaning.NOT_APPLICABLE,
    "err!": Meaning.BROKEN,
    "[unknown error]": Meaning.BROKEN,
    "unknown error": Meaning.BROKEN,
    "[gpu is lost]": Meaning.BROKEN,
    "gpu is lost": Meaning.BROKEN,
    "[gpu requires reset]": Meaning.BROKEN,
    "[insufficient permissions]": Meaning.UNKNOWN,
    "[unknown]": Meaning.UNKNOWN,
    "": Meaning.UNKNOWN,
}
"""In lower case. `None` of the recovery action is a value and not in here."""


def meaning(text: str) -> Meaning | None:
    """Return what a word means; None where it is a value. One in brackets is never a value."""
    word = text.strip().lower()
    return WORDS.get(word, Meaning.UNKNOWN if word.startswith("[") and word.endswith("]") else None)


APPLICATION_XIDS = frozenset({8, 13, 31, 43, 45, 68, 69, 109})
"""Faults of a program: a healthy machine may show them."""
HARDWARE_XIDS = frozenset({48, 62, 63, 64, 74, 79, 92, 94, 95, 110, 119, 120, 121, 140, 143, 154, 155, 156})
"""Faults of card, link, memory or firmware. What is in neither set is unknown."""

LINK_XIDS = frozenset(range(144, 151))
"""Faults of NVLink 5, whose message says whether they are fatal (leptonai/gpud#1174)."""
_HEALED = "to 0x0 (None)"
"""Ends the message of Xid 154 that takes a recovery action back."""


def is_hardware_fault(number: int, line: str) -> bool:
    """Whether a line of the kernel log about an Xid is a fault of card, link, memory or firmware."""
    if number in LINK_XIDS:
        return " Fatal " in line
    return number in HARDWARE_XIDS and _HEALED not in line


NVIDIA = "10de"
"""PCI vendor."""
BRIDGE_CLASS = "0680"
"""Class of an NVSwitch of generations before NVLink 5."""
OPEN_FROM = 0x1E00
"""First device id of Turing: from here on the open kernel modules exist."""
OPEN_ONLY_FROM = 0x2900
"""First device id of Blackwell: from here on there are no others."""
SXM_IDS = frozenset({"20b0", "20b2", "2324", "2329", "2330", "2335", "2339", "2901"})
"""A100, H800, H20, H100, H200 and B200 of the SXM form, whose NVLink needs an initialised NVSwitch fabric."""
