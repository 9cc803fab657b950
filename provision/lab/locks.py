"""File locks. The kernel releases them when the process that holds them ends, even after SIGKILL."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from provision.lab.settings import LabError


@contextmanager
def exclusive(
    file: Path, timeout: float = 3600, waiting: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Hold a lock file.

    Args:
        file: created if it is missing.
        timeout: seconds to wait for another process.
        waiting: called before it waits.

    Raises:
        LabError: another process held it for `timeout` seconds.
    """
    fd = take((file,), 0)
    if fd is None:
        waiting()
        fd = take((file,), timeout)
    if fd is None:
        summary = f"another process has held {file} for more than {timeout:.0f} s"
        raise LabError(summary, f"find the process with `fuser {file}`")
    try:
        yield
    finally:
        os.close(fd)


def take(files: tuple[Path, ...], timeout: float) -> int | None:
    """Lock the first free file; return its descriptor, or None after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        for file in files:
            fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
            else:
                if _same(fd, file):
                    return fd
                os.close(fd)  # the file was removed while this process waited
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.2)


def _same(fd: int, file: Path) -> bool:
    try:
        return file.stat().st_ino == os.fstat(fd).st_ino
    except FileNotFoundError:
        return False
