"""One run at a time: a lock on the controller by inventory; hosts have their own."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from provision.values.diagnostics import Diagnostic
from provision.values.errors import ProvisionError, UsageError
from provision.values.outcomes import ExitCode
from provision.values.whole_file import make_private_folder


def _locked(summary: str, remedy: str = "wait for it to end, and run again") -> ProvisionError:
    """Return the error of a run that another one keeps out: exit 6."""
    return ProvisionError(
        Diagnostic("LOCKED", summary, untouched="nothing was touched", remedy=remedy), ExitCode.LOCKED
    )


_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
"""What flock(2) says on network filesystems without a lock service."""


@contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Do something with the files of a folder of the state.

    Raises:
        UsageError: they cannot be made, read or written (exit 64).
    """
    try:
        yield
    except OSError as error:
        remedy = "set PROVISION_STATE to a folder of yours"
        if error.errno in _NO_LOCKS:
            remedy = "set PROVISION_STATE to a folder on a local disk: files there cannot be locked"
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            remedy = f"free some space there, or {remedy} elsewhere"
        summary = f"the state of runs cannot be kept in {folder}: {error.strerror}"
        untouched = "nothing was touched"
        raise UsageError(Diagnostic("STATE_UNUSABLE", summary, untouched=untouched, remedy=remedy)) from None


_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Through a link, another file would be emptied; a pipe would be waited for."""


@contextmanager
def run_lock(path: Path, run: str, who: str) -> Iterator[None]:
    """Hold the run lock of an inventory; the kernel frees it with the process, even after a kill.

    Raises:
        ProvisionError: another run holds it (exit 6), with its id, who and since when.
        UsageError: the folder of the state cannot hold it.
    """
    with usable(path.parent):
        make_private_folder(path.parent)
        handle = os.open(path, os.O_CREAT | _FLAGS, 0o600)
    try:
        with usable(path.parent):
            if not _taken(handle):
                raise _locked(_holder_text(_read(handle)))
            holder = json.dumps({"run": run, "who": who, "pid": os.getpid(), "since": time.time()}).encode()
            os.ftruncate(handle, 0)
            os.pwrite(handle, holder, 0)
        try:
            yield
        finally:
            with suppress(OSError):  # the next run reads who held it, and that nobody does
                os.ftruncate(handle, 0)
    finally:
        os.close(handle)


@dataclass(frozen=True, slots=True)
class Holder:
    """Who wrote itself into a run lock: run, user and host, process id, and epoch seconds of its begin."""

    run: str
    who: str
    pid: int
    since: float


def clear_run_lock(path: Path) -> Holder | None:
    """Remove what a run that died left in a run lock, and return it; None if there is nothing.

    The file itself stays: whoever opened it before its removal would lock another file than the rest.

    Raises:
        ProvisionError: a run holds the lock (exit 6); only its end frees it.
        UsageError: the folder of the state can hold no lock.
    """
    with usable(path.parent):
        try:
            handle = os.open(path, _FLAGS)
        except FileNotFoundError:
            return None
    try:
        with usable(path.parent):
            is_taken = _taken(handle)
            holder = _read(handle)
            if is_taken:
                os.ftruncate(handle, 0)
                return holder
        remedy = "wait for its end; Ctrl-C in its terminal ends it"
        if holder is not None:
            remedy += f", and so does kill {holder.pid} on the machine where it runs"
        raise _locked(_holder_text(holder), remedy)
    finally:
        os.close(handle)


def _taken(handle: int) -> bool:
    """Take the lock of a file that is open; False when another process has it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(handle: int) -> Holder | None:
    try:
        content = json.loads(os.pread(handle, 4096, 0))
        return Holder(str(content["run"]), str(content["who"]), int(content["pid"]), float(content["since"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _holder_text(holder: Holder | None) -> str:
    if holder is None:
        return "another run of this inventory is in progress"
    try:
        since = time.strftime("%H:%M:%S", time.localtime(holder.since))
    except (OverflowError, ValueError, OSError):
        since = "an unknown time"
    return f"run {holder.run} of {holder.who} (process {holder.pid}) has been running since {since}"
