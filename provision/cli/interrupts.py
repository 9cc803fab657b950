"""Signals: the first Ctrl-C lets what runs end, the second one leaves."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from provision.values.cancel import Cancel

DRAINING = "interrupted: nothing new begins, what runs now ends first (once more to leave at once)"
LEAVING = "leaving: what runs on the targets is being ended; the next run looks up what became of it"


@contextmanager
def interrupts(cancel: Cancel, notice: Callable[[str], None]) -> Iterator[None]:
    """Turn SIGINT and SIGTERM into cancellation while the block runs.

    Args:
        cancel: told to drain by the first signal, to leave by the second.
        notice: shows a line to the user; called inside the signal handler, so it must only remember it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals belong to the main thread; a caller of the library has handlers of its own
        return

    def handle(_number: int, _frame: FrameType | None) -> None:
        if cancel.draining:
            notice(LEAVING)
            cancel.leave()
        else:
            notice(DRAINING)
            cancel.drain()

    before = {each: signal.signal(each, handle) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, old in before.items():
            signal.signal(each, old)
