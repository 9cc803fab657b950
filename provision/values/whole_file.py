"""Files that are written whole or not at all, whatever ends the process meanwhile."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def make_private_folder(path: Path) -> None:
    """Make a folder and those above it that are missing, for its owner only, whatever the process's umask is.

    Raises:
        OSError: it cannot be made, or something else is there.
    """
    if path.is_dir():
        return
    if path.parent != path:
        make_private_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)


def write_whole(path: Path, text: str, mode: int = 0o600, *, lasting: bool = True) -> None:
    """Write a file beside its place and rename it.

    Args:
        path: the file; its folder exists.
        text: its content, written as UTF-8.
        mode: of the file from its first byte, less the process's umask.
        lasting: see it on the disk first, so that a power cut leaves one of the two; costs milliseconds.

    Raises:
        OSError: it cannot be written; the old file is as it was.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    # A leftover of a killed process with the same ids may have another mode.
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
