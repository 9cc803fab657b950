"""Trying again what may go away by itself; never an action of unknown outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from provision.values.cancel import Cancel
from provision.values.errors import Transient

T = TypeVar("T")
ATTEMPTS = 3
LONGEST_PAUSE = 30.0


def retrying(call: Callable[[], T], cancel: Cancel, attempts: int = ATTEMPTS) -> T:
    """Return what a read-only call returns, tried again with growing pauses while it fails transiently.

    Args:
        call: asks and changes nothing.
        cancel: ends the pauses.
        attempts: how often at most.

    Raises:
        Transient: the last attempt failed too.
        Interrupted: the run must leave.
    """
    for attempt in range(1, attempts):
        try:
            return call()
        except Transient as error:
            if cancel.draining:
                raise
            cancel.wait(min(error.retry_after * 2 ** (attempt - 1), LONGEST_PAUSE))
    return call()
