"""Deadlines of frames, kept on the controller: no clock of the host is trusted to end its own work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self


@dataclass(frozen=True, slots=True)
class Limit:
    """How long a frame may take.

    Args:
        timeout: seconds from its beginning to its end.
        quiet: seconds without output, 0 for no such limit.
    """

    timeout: float
    quiet: float = 0.0


class Watchdog:
    """A thread that says when the open frame's time is up; at most once.

    Args:
        limits: by frame; a frame without one may take as long as it likes.
        greeting: for the time before the first frame.
        expire: called from the watchdog's thread.
    """

    def __init__(self, limits: Mapping[int, Limit], greeting: Limit, expire: Callable[[], None]) -> None:
        self._limits = limits
        self._expire = expire
        self._changed = threading.Condition()
        self._frame = -1
        self._limit: Limit | None = greeting
        self._since = self._noise = time.monotonic()
        self._thread = threading.Thread(target=self._watch, name="provision-watchdog", daemon=True)
        self.ended = threading.Event()
        self.expired: int | None = None
        self.reason = ""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self.ended.set()
            self._changed.notify()
        self._thread.join()

    def begin(self, index: int) -> None:
        """Say that a frame began."""
        with self._changed:
            self._frame = index
            self._limit = self._limits.get(index)
            self._since = self._noise = time.monotonic()

    def end(self) -> None:
        """Say that the open frame ended."""
        self._limit = None

    def noise(self) -> None:
        """Say that there was output."""
        self._noise = time.monotonic()

    def _left(self) -> float | None:
        limit = self._limit
        if limit is None:
            return None
        now = time.monotonic()
        left = self._since + limit.timeout - now
        return min(left, self._noise + limit.quiet - now) if limit.quiet else left

    def _watch(self) -> None:
        with self._changed:
            while not self.ended.is_set():
                left = self._left()
                if left is None or left > 0:
                    # looking once a second costs less than a wake-up for every frame
                    self._changed.wait(1.0 if left is None else min(left, 1.0))
                    continue
                limit = self._limit
                self.expired = self._frame
                over = limit is not None and time.monotonic() - self._since >= limit.timeout
                if limit is not None:
                    self.reason = (
                        f"not done within {limit.timeout:g} s" if over else f"no output for {limit.quiet:g} s"
                    )
                break
            else:
                return
        self._expire()
