"""Deadlines of frames, kept on the controller: no clock of the host is trusted to end its own work."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from provision.values.cancel import Cancel

DONE = -2
_LAST_WORDS = 1.0


@dataclass(frozen=True, slots=True)
class Limit:
    """How long a frame may take.

    Args:
        timeout: seconds from its beginning to its end.
        quiet: seconds without output, 0 for no such limit.
    """

    timeout: float
    quiet: float = 0.0


class Deadlines(Cancel):
    """A cancellation that also ends the execution when the time of the open frame is over.

    Connections look at `leaving` while they wait, so no thread is needed to watch the clock.

    Args:
        parent: the run's own cancellation.
        limits: by frame; a frame without one may take as long as it likes.
        greeting: for the time from sending the script to the first frame.
        sent: whether the script has been sent: connecting has deadlines of its own.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        parent: Cancel,
        limits: Mapping[int, Limit],
        greeting: Limit,
        sent: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._parent = parent
        self._limits = limits
        self._sent = sent
        self._clock = clock
        self._frame = -1
        self._limit: Limit | None = greeting
        self._since: float | None = None
        self._noise = 0.0
        self.expired: int | None = None
        """Which frame took too long (-1: the greeting), None if none did."""
        self.left = False
        """Whether the last frame ended and something still held the streams open."""
        self.reason = ""

    @property
    def draining(self) -> bool:
        """Whether nothing new may begin."""
        return self._parent.draining

    @property
    def leaving(self) -> bool:
        """Whether everything must end now, or the open frame's time is up."""
        return self._parent.leaving or self.left or self.expired is not None or self._over()

    def drain(self) -> None:
        """Drain the run."""
        self._parent.drain()

    def leave(self) -> None:
        """Leave the run."""
        self._parent.leave()

    def wait(self, seconds: float) -> None:
        """Sleep, but raise Interrupted as soon as the run must leave."""
        self._parent.wait(seconds)

    def begin(self, index: int) -> None:
        """Say that a frame began."""
        self._frame = index
        self._limit = self._limits.get(index)
        self._since = self._noise = self._clock()

    def end(self) -> None:
        """Say that the open frame ended."""
        self._limit = None

    def finish(self) -> None:
        """Say that the last frame ended: what still holds the streams open is given a moment and left."""
        self._frame = DONE
        self._limit = Limit(_LAST_WORDS)
        self._since = self._noise = self._clock()

    def noise(self) -> None:
        """Say that there was output."""
        self._noise = self._clock()

    def _over(self) -> bool:
        limit = self._limit
        if limit is None:
            return False
        now = self._clock()
        if self._since is None:
            if self._sent():
                self._since = self._noise = now
            return False
        if now - self._since >= limit.timeout:
            self.reason = f"not done within {limit.timeout:g} s"
        elif limit.quiet and now - self._noise >= limit.quiet:
            self.reason = f"no output for {limit.quiet:g} s"
        else:
            return False
        if self._frame == DONE:
            self.left = True
        else:
            self.expired = self._frame
        return True
