"""Live output: the last whole line of what runs, at most four times a second."""

from __future__ import annotations

import time
from collections.abc import Callable

from provision.contracts.driver import Emit
from provision.values.redaction import printable

INTERVAL = 0.25
"""Seconds between two lines."""

_LONGEST = 4096


class Live:
    """Turns filtered output into lines for a person.

    Args:
        emit: receives a line.
        first: the first frame whose output is of interest.
        clock: monotonic seconds.
    """

    def __init__(self, emit: Emit, first: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._emit = emit
        self._first = first
        self._clock = clock
        self._last = -INTERVAL
        self._line = b""
        self._rest = b""
        self._index = first

    def output(self, index: int, data: bytes) -> None:
        """Take the next bytes of a frame."""
        if index < self._first:
            return
        if index != self._index:
            self._index = index
            self._end()
        end = data.rfind(b"\n")
        if end < 0:
            self._rest = (self._rest + data)[-_LONGEST:]
            return
        begin = data.rfind(b"\n", 0, end)
        line = data[begin + 1 : end] if begin >= 0 else self._rest + data[:end]
        self._rest = data[end + 1 :][-_LONGEST:]
        if line.strip():
            self._line = line[:_LONGEST]
        now = self._clock()
        if self._line and now - self._last >= INTERVAL:
            self._last = now
            self._send()

    def close(self) -> None:
        """Give out the last line if it was held back."""
        self._end()
        if self._line:
            self._send()

    def _end(self) -> None:
        """What a frame ended with is a line: the newline belongs to the mark."""
        rest, self._rest = self._rest, b""
        if rest.strip():
            self._line = rest

    def _send(self) -> None:
        # progress bars end their states with a carriage return
        line, self._line = self._line.rstrip(b"\r").rsplit(b"\r", 1)[-1], b""
        text = printable(line.decode("utf-8", "replace")).strip()
        if text:
            self._emit(text)
