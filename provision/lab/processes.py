"""Find and end what a lab started, and nothing else.

Every process of a lab carries its folder in the environment (`MARK`), which children inherit; containers' own
processes die with the process that holds them. Control groups of containers are the lab's own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from provision.lab import netns
from provision.lab.settings import machine_wide

MARK = "PROVISION_LAB_OWNER"
_CGROUP_ROOTS = (Path("/sys/fs/cgroup/systemd"), Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))


def environment(folder: Path) -> dict[str, str]:
    """Return the environment for a process of the lab, which may have another working folder."""
    return {**os.environ, "PROVISION_LAB_DIR": str(folder.parent), MARK: str(folder)}


def start_time(pid: int) -> str | None:
    """Return the start time of a living process in clock ticks, or None (a zombie is not living)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def read_pid(file: Path) -> int | None:
    """Return the process that a pid file names, if it lives and belongs to the file's lab.

    The file lies somewhere below the lab's folder; a number that was given to another process is not ours.
    """
    try:
        pid = int(file.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    owner = _owner(pid)
    if start_time(pid) is None or owner is None or Path(owner) not in file.parents:
        return None
    return pid


def of_lab(folder: Path, spaces: Iterable[str] = ()) -> set[int]:
    """Return the processes of a lab: by mark, and those inside its network namespaces."""
    inodes = {netns.path(name).stat().st_ino for name in spaces if netns.exists(name)}
    spared = _ancestors()
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in spared:
            continue
        pid = int(entry.name)
        with contextlib.suppress(OSError):
            if _owner(pid) == str(folder) or (entry / "ns/net").stat().st_ino in inodes:
                found.add(pid)
    return found


def labs() -> set[Path]:
    """Return the folders of all labs that have a process on this machine."""
    owners = (_owner(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {Path(owner) for owner in owners if owner is not None}


def end(pids: Iterable[int], *, grace: float) -> None:
    """Ask processes to end, and kill after `grace` seconds; return when they are gone."""
    known = {pid: start_time(pid) for pid in pids}
    alive = {pid for pid, started in known.items() if started is not None}
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM if grace else signal.SIGKILL)
    deadline = time.monotonic() + grace
    killed = not grace
    while alive := {pid for pid in alive if start_time(pid) == known[pid]}:
        if not killed and time.monotonic() > deadline:
            for pid in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed = True
        elif killed and time.monotonic() > deadline + 20:
            return
        time.sleep(0.02)


def remove_cgroups(lab: Path, guest: str | None = None) -> None:
    """Remove the control groups of a lab, or of one container of it."""
    for root in _CGROUP_ROOTS:
        top = root / machine_wide(lab) / (guest or "")
        if not top.is_dir():
            continue
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()


def in_cgroups(lab: Path) -> set[int]:
    """Return the processes in the control groups of a lab."""
    found: set[int] = set()
    for root in _CGROUP_ROOTS:
        # os.walk passes over groups that go meanwhile; Path.glob raises.
        for folder, _, _ in os.walk(root / machine_wide(lab)):
            with contextlib.suppress(OSError):
                found |= {int(word) for word in Path(folder, "cgroup.procs").read_text().split()}
    return found


def _owner(pid: int) -> str | None:
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    prefix = f"{MARK}=".encode()
    return next((os.fsdecode(word[len(prefix) :]) for word in words if word.startswith(prefix)), None)


def _ancestors() -> set[int]:
    """Return this process and those above it: they are never ended."""
    found, pid = set(), os.getpid()
    while pid > 0:
        found.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
    return found
