"""Whole numbers in texts that somebody else wrote."""

from __future__ import annotations

import re


def is_number(text: str) -> bool:
    """Whether a text is a whole number of at most 20 digits, as 64 bits have; `int` refuses thousands."""
    return re.fullmatch("[0-9]{1,20}", text) is not None
