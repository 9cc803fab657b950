"""How often Python looks for reference cycles while much is made at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

EVERY = 50_000
"""New objects between two looks, instead of Python's 700: a plan makes many objects and nearly no cycles."""
ROUNDS = 20


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Look for cycles less often meanwhile; whoever has switched that off keeps it off."""
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(before[0], EVERY), max(before[1], ROUNDS), max(before[2], ROUNDS))
    try:
        yield
    finally:
        gc.set_threshold(*before)
