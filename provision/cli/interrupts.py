"""Signals: the first Ctrl-C waits for running steps, the second one stops them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from provision.values.cancel import Cancel

DRAINING = "interrupted: no new step begins; waiting for running steps (Ctrl-C again stops them)"
LEAVING = "stopping the commands on the targets; the next run looks up how they ended"


@contextmanager
def interrupts(cancel: Cancel, notice: Callable[[str], None]) -> Iterator[None]:
    """Turn SIGINT and SIGTERM into cancellation while the block runs.

    Args:
        cancel: drains at the first signal, leaves at the second.
        notice: shows a line to the user; called inside the signal handler, so it must only store the line.
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

    former = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
