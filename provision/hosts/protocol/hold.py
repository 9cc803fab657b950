"""A lock on a host that lasts longer than one script: held by an execution until it is released or cut."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from provision.hosts.protocol.script import LOCK
from provision.values.cancel import Cancel, Interrupted

if TYPE_CHECKING:
    from provision.hosts.protocol.execution import Execution

TICK = 0.1
PATIENCE = 1.0
"""Seconds that a release is waited for; the end of the connection frees the lock anyway."""


class Hold:
    """Implements `contracts.driver.Hold` by a script on a thread of its own.

    Args:
        make: makes the execution from a cancellation that ends it, and a callback for frames that end.
        script: what takes the lock and keeps it (`hold_script`).
    """

    def __init__(self, make: Callable[[Cancel, Callable[[int], None]], Execution], script: bytes) -> None:
        self._end = Cancel()
        self._answered = threading.Event()
        self._script = script
        self._error: BaseException | None = None
        self.execution = make(self._end, self._ended)
        self._thread = threading.Thread(target=self._run, name="hold", daemon=True)

    def begin(self, cancel: Cancel) -> None:
        """Return when the host has answered whether the lock is taken: the answer is in `execution`.

        Raises:
            ProvisionError: the connection could not be made.
            Interrupted: the run leaves.
        """
        self._thread.start()
        while not self._answered.wait(TICK):
            if cancel.leaving:
                self._end.leave()
                raise Interrupted
        if self._error is not None:
            raise self._error

    @property
    def alive(self) -> bool:
        """Whether the lock is still held."""
        return self._thread.is_alive() and not self._end.leaving

    def idle(self, run: str) -> float:
        """Return the seconds for which no other run has held the lock; 0.0 if nobody noted its end."""
        frame = self.execution.frame(LOCK)
        lines = frame.stdout.decode("utf-8", "replace").splitlines() if frame is not None else []
        previous, now = (*lines, "", "")[:2]
        holder, _, _, _, *end = (*previous.split("\t"), "", "", "")[:5]
        if holder in {"", run}:
            return math.inf
        if not (now.isdecimal() and end and end[0].isdecimal()):
            return 0.0
        return max(0.0, float(now) - float(end[0]))

    def release(self) -> None:
        """Free the lock; safe to call twice."""
        self._end.leave()
        self._thread.join(PATIENCE)

    def _ended(self, index: int) -> None:
        if index == LOCK:
            self._answered.set()

    def _run(self) -> None:
        try:
            self.execution.run(self._script)
        except BaseException as error:  # noqa: BLE001 - carried to who waits for the lock
            self._error = error
        finally:
            self._answered.set()
