r"""Reads what a framed script prints: incremental, bytes in and bytes out, total on any input.

A frame is `\n<nonce> b <i>\n` bytes `\n<nonce> e <i> <rc>\n`, on stdout and stderr alike. The newline
before `e` belongs to the mark, so output is returned byte for byte whether or not it ends in a newline.
Memory is bounded whatever arrives: of each frame and stream the first and last `keep` bytes stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from provision.contracts.query import Frame

KEEP = 64 * 1024
"""Bytes kept at each end of a stream of one frame."""

_MARK_LIMIT = 64
"""Longest tail of a mark (` e <i> <rc>\\n`): a longer line that begins with the nonce is no mark."""

_MARK = re.compile(rb"(?:b ([0-9]{1,9})|e ([0-9]{1,9}) ([0-9]{1,9}))")


class Filter(Protocol):
    """Changes bytes on their way (redaction); may hold some back until more bytes have come."""

    def feed(self, data: bytes) -> bytes:
        """Return what may pass."""

    def ahead(self, data: bytes) -> bytes:
        """Return what would pass if this came next; nothing is taken."""

    def flush(self) -> bytes:
        """Return what was held back."""


class Kept:
    """The first and last `keep` bytes of a stream; the rest is only counted."""

    __slots__ = ("_head", "_keep", "_tail", "_total")

    def __init__(self, keep: int = KEEP) -> None:
        self._keep = keep
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        self._total += len(data)
        room = self._keep - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
            if not data:
                return
        self._tail += data if len(data) <= self._keep else data[-self._keep :]
        if len(self._tail) > 2 * self._keep:
            del self._tail[: -self._keep]

    def value(self) -> tuple[bytes, int]:
        """Return what was kept and how many bytes were not.

        Where bytes are missing, a newline separates the two parts, so that no line is made of two halves.
        """
        tail = bytes(self._tail[-self._keep :])
        dropped = self._total - len(self._head) - len(tail)
        return bytes(self._head) + (b"\n" if dropped else b"") + tail, dropped


class _Part:
    """One stream of one frame."""

    __slots__ = ("filter", "kept", "rc", "shown")

    def __init__(self, keep: int, through: Filter | None) -> None:
        self.kept = Kept(keep)
        self.filter = through
        self.shown: int | None = None
        """How many bytes of a line that has ended were shown ahead of the filter; None when none was."""
        self.rc: int | None = None


def _ignore(*_: object) -> None:
    """Stand in for a callback that nobody gave."""


class _Stream:
    """One of the two streams."""

    def __init__(
        self,
        nonce: bytes,
        new_part: Callable[[], _Part],
        on_output: Callable[[int, bytes], None] | None,
        on_begin: Callable[[int], None] | None = None,
        on_end: Callable[[int], None] | None = None,
    ) -> None:
        self._mark = b"\n" + nonce + b" "
        self._new_part = new_part
        self._on_output = on_output or _ignore
        self._on_begin = on_begin or _ignore
        self._on_end = on_end or _ignore
        self._held = b""
        self.parts: dict[int, _Part] = {}
        self.open: int | None = None
        self.outside = Kept(4096)

    def feed(self, data: bytes) -> None:
        mark = self._mark
        buffer = self._held + data if self._held else data
        start = 0
        search = 0
        while (begin := buffer.find(mark, search)) >= 0:
            after = begin + len(mark)
            end = buffer.find(b"\n", after, after + _MARK_LIMIT)
            if end < 0 and len(buffer) - after < _MARK_LIMIT:
                self._data(buffer[start:begin])
                self._held = buffer[begin:]
                return
            match = _MARK.fullmatch(buffer, after, end) if end >= 0 else None
            if match is None:
                search = after
                continue
            self._data(buffer[start:begin])
            self._marked(match)
            start = search = end + 1
        keep = self._partial_mark(buffer, max(start, search - 1))
        self._data(buffer[start:keep])
        self._held = buffer[keep:]
        if self._held and self.open is not None:
            # it begins with a newline, so the line before it is complete and can be shown
            self._show_line(self.open)

    def finish(self) -> None:
        self._data(self._held)
        self._held = b""
        if self.open is not None:
            self._flush(self.open)

    def _show_line(self, index: int) -> None:
        """Show the line that has ended, unless the filter needs more to judge its end."""
        part = self.parts[index]
        if part.shown is not None:
            return
        line = b"\n" if part.filter is None else part.filter.ahead(b"\n")
        if line.endswith(b"\n"):
            part.shown = len(line) - 1
            self._on_output(index, line)

    def _partial_mark(self, buffer: bytes, start: int) -> int:
        """Return where a mark may begin that is not yet complete (the end if none may)."""
        newline = buffer.find(b"\n", max(start, len(buffer) - len(self._mark) + 1))
        while newline >= 0:
            if self._mark.startswith(buffer[newline:]):
                return newline
            newline = buffer.find(b"\n", newline + 1)
        return len(buffer)

    def _marked(self, match: re.Match[bytes]) -> None:
        if match[1] is not None:
            index = int(match[1])
            if self.open is not None:
                self._flush(self.open)
            self.open = None
            if index not in self.parts:
                self.parts[index] = self._new_part()
                self.open = index
                self._on_begin(index)
            return
        index = int(match[2])
        if index == self.open:
            self._flush(index)
            self.parts[index].rc = int(match[3])
            self.open = None
            self._on_end(index)

    def _flush(self, index: int) -> None:
        part = self.parts[index]
        if part.filter is not None:
            self._keep(index, part, part.filter.flush())

    def _data(self, data: bytes) -> None:
        if not data:
            return
        if self.open is None:
            self.outside.add(data)
            return
        part = self.parts[self.open]
        self._keep(self.open, part, data if part.filter is None else part.filter.feed(data))

    def _keep(self, index: int, part: _Part, data: bytes) -> None:
        if data:
            part.kept.add(data)
            unseen, part.shown = data[part.shown or 0 :], None
            if unseen:
                self._on_output(index, unseen)


class FrameParser:
    """Both streams of one execution.

    Args:
        nonce: what the marks carry.
        keep: bytes kept at each end of each stream of a frame.
        through: makes a filter for each stream of a frame (redaction), or None.
        on_begin: called when a frame begins (stdout's mark).
        on_end: called when a frame has ended (stdout's mark).
        on_output: called with filtered bytes inside of a frame, for live output: a newline at the end of what
            has come so far may come twice.
    """

    def __init__(
        self,
        nonce: str,
        *,
        keep: int = KEEP,
        through: Callable[[], Filter] | None = None,
        on_begin: Callable[[int], None] | None = None,
        on_end: Callable[[int], None] | None = None,
        on_output: Callable[[int, bytes], None] | None = None,
    ) -> None:
        def new_part() -> _Part:
            return _Part(keep, None if through is None else through())

        mark = nonce.encode("ascii")
        self._stdout = _Stream(mark, new_part, on_output, on_begin, on_end)
        self._stderr = _Stream(mark, new_part, on_output)

    def feed(self, data: bytes, stderr: bool) -> None:
        """Take the next bytes of one stream; never raises on any bytes."""
        (self._stderr if stderr else self._stdout).feed(data)

    def finish(self) -> None:
        """End both streams: no more bytes follow."""
        self._stdout.finish()
        self._stderr.finish()

    @property
    def open(self) -> int | None:
        """Which frame has begun on stdout and not ended."""
        return self._stdout.open

    def frame(self, index: int) -> Frame | None:
        """Return a frame, None if it never began."""
        out, err = self._stdout.parts.get(index), self._stderr.parts.get(index)
        if out is None and err is None:
            return None
        stdout, dropped = (b"", 0) if out is None else out.kept.value()
        stderr, more = (b"", 0) if err is None else err.kept.value()
        rc = next((part.rc for part in (out, err) if part is not None and part.rc is not None), None)
        return Frame(stdout, stderr, rc, dropped + more)

    def outside(self) -> bytes:
        """Return the beginning and end of the output outside of all frames: banners, messages of sudo."""
        return self._stdout.outside.value()[0] + self._stderr.outside.value()[0]
