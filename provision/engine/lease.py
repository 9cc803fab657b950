"""One run at a time: a lock on the controller by inventory; hosts have their own."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from provision.values.diagnostics import Diagnostic
from provision.values.errors import ProvisionError
from provision.values.outcomes import ExitCode


def locked(summary: str, remedy: str = "wait for it to end, and run again") -> ProvisionError:
    """Return the error of a run that another one keeps out: exit 6."""
    return ProvisionError(
        Diagnostic("LOCKED", summary, untouched="nothing was touched", remedy=remedy), ExitCode.LOCKED
    )


@contextmanager
def lease(path: Path, run: str, who: str) -> Iterator[None]:
    """Hold the run lock of an inventory; the kernel frees it with the process, even after a kill.

    Raises:
        ProvisionError: another run holds it (exit 6), with its id, who and since when.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise locked(_holder(handle)) from None
        os.ftruncate(handle, 0)
        os.pwrite(
            handle, json.dumps({"run": run, "who": who, "pid": os.getpid(), "since": time.time()}).encode(), 0
        )
        yield
    finally:
        os.close(handle)


def _holder(handle: int) -> str:
    try:
        found = json.loads(os.pread(handle, 4096, 0))
        since = time.strftime("%H:%M:%S", time.localtime(found["since"]))
        return f"run {found['run']} of {found['who']} (process {found['pid']}) goes on since {since}"
    except (ValueError, KeyError, TypeError):
        return "another run of this inventory goes on"
