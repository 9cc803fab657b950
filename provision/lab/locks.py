"""File locks: they end with the process that holds them, however it ends."""

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
        file: made if it is not there.
        timeout: seconds to wait for another process.
        waiting: called before a wait.

    Raises:
        LabError: another process held it for `timeout` seconds.
    """
    fd = take((file,), 0)
    if fd is None:
        waiting()
        fd = take((file,), timeout)
    if fd is None:
        summary = f"{file} is held by another process since {timeout:.0f} s"
        raise LabError(summary, f"see which process holds it: `fuser {file}`")
    try:
        yield
    finally:
        os.close(fd)


def take(files: tuple[Path, ...], timeout: float) -> int | None:
    """Lock the first free one of some files; return its descriptor, or None after `timeout` seconds."""
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
                os.close(fd)  # it was removed while this process waited
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.2)


def _same(fd: int, file: Path) -> bool:
    try:
        return file.stat().st_ino == os.fstat(fd).st_ino
    except FileNotFoundError:
        return False
