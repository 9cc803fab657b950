"""Calls into libraries that have no deadline of their own for the whole of an exchange."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return what a call returns or raises; a call that takes too long is left to a daemon thread.

    Raises:
        TimeoutError: it has not ended in time.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again where the call was made
            errors.append(error)

    thread = threading.Thread(target=work, name="call", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if results:
        return results[0]
    raise TimeoutError(f"no whole answer within {seconds:g} s")
