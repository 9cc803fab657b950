"""What a user may have meant by a name that nothing has."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

COMPARED = 500
"""Names that a wrong one is compared with; more would take seconds."""
LISTED = 20
"""Names that a message lists."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known name that is most like a word, or an empty string."""
    names = list(known)
    if len(names) > COMPARED:
        return ""
    return next(iter(difflib.get_close_matches(word[:60], names, n=1, cutoff=0.6)), "")


def known_names(word: str, known: Iterable[str]) -> str:
    """Return the remedy for a name that is not known: the nearest one, and which ones there are."""
    names = list(known)
    if not names:
        return ""
    rest = len(names) - LISTED
    listed = ", ".join(names[:LISTED]) + (f" and {rest} more" if rest > 0 else "")
    closest = nearest(word, names)
    return f"Did you mean {closest}? Valid names: {listed}." if closest else f"Valid names: {listed}."
