"""Reads a file of the controller as foreign input: bounded in size and in time, whatever is at its path."""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from pathlib import Path

SECONDS = 10.0
"""How long a pipe or device may take to give its content."""

_CHUNK = 64 * 1024


def read_limited(path: Path, limit: int, seconds: float = SECONDS) -> bytes:
    """Return a file's content, of a longer one the first `limit` + 1 bytes.

    A pipe is read until its writer closes it, as `<(command)` of a shell needs it.

    Raises:
        OSError: it cannot be read, or a pipe gives no end within the time.
        ValueError: the path holds a NUL character.
    """
    # Without O_NONBLOCK, open(2) of a pipe waits for its writer, and nothing can end it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if stat.S_ISREG(kind):
            return _regular(descriptor, limit)
        return _waiting(descriptor, limit, seconds, is_pipe=stat.S_ISFIFO(kind))
    finally:
        os.close(descriptor)


def _regular(descriptor: int, limit: int) -> bytes:
    pieces, size = [], 0
    while size <= limit and (piece := os.read(descriptor, min(_CHUNK, limit + 1 - size))):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _waiting(descriptor: int, limit: int, seconds: float, *, is_pipe: bool) -> bytes:
    data, end = b"", time.monotonic() + seconds
    while len(data) <= limit:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError(errno.ETIMEDOUT, f"it gave no end of its content within {seconds:g} s")
        select.select([descriptor], [], [], min(left, 0.1))
        try:
            piece = os.read(descriptor, min(_CHUNK, limit + 1 - len(data)))
        except BlockingIOError:
            continue
        if piece:
            data += piece
        elif data or not is_pipe:
            return data
        else:
            time.sleep(min(0.02, max(left, 0.0)))  # no writer yet
    return data
