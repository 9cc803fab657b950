"""Finds and ends the processes of a lab, and no others.

Every process of a lab has the lab's folder in its environment (`MARK`), which children inherit. A container's
processes end with the process that supervises it. The control groups of containers belong to the lab.
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
    """Return the environment of a process of the lab."""
    return {**os.environ, "PROVISION_LAB_DIR": str(folder.parent), MARK: str(folder)}


def start_time(pid: int) -> str | None:
    """Return the start time of a live process in clock ticks, or None; a zombie is not live."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def read_pid(file: Path) -> int | None:
    """Return the process that a pid file names, if it is live and belongs to the file's lab.

    The file is below the lab's folder. A reused pid belongs to another process, so the owner is checked.
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
    """Return the processes with the mark of a lab, and those inside its network namespaces."""
    inodes = {netns.path(name).stat().st_ino for name in spaces if netns.exists(name)}
    spared = _ancestors()
    pids: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in spared:
            continue
        pid = int(entry.name)
        with contextlib.suppress(OSError):
            if _owner(pid) == str(folder) or (entry / "ns/net").stat().st_ino in inodes:
                pids.add(pid)
    return pids


def labs() -> set[Path]:
    """Return the folders of all labs that have a process on this machine."""
    owners = (_owner(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {Path(owner) for owner in owners if owner is not None}


def end(pids: Iterable[int], *, grace: float) -> None:
    """Send SIGTERM, and SIGKILL after `grace` seconds; return when the processes are gone, or after 20 s."""
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
    """Remove the control groups of a lab, or of one of its containers."""
    for root in _CGROUP_ROOTS:
        top = root / machine_wide(lab) / (guest or "")
        if not top.is_dir():
            continue
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()


def in_cgroups(lab: Path) -> set[int]:
    """Return the processes in the control groups of a lab."""
    pids: set[int] = set()
    for root in _CGROUP_ROOTS:
        # os.walk ignores groups that are removed meanwhile; Path.glob raises.
        for folder, _, _ in os.walk(root / machine_wide(lab)):
            with contextlib.suppress(OSError):
                pids |= {int(word) for word in Path(folder, "cgroup.procs").read_text().split()}
    return pids


def _owner(pid: int) -> str | None:
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    prefix = f"{MARK}=".encode()
    return next((os.fsdecode(word[len(prefix) :]) for word in words if word.startswith(prefix)), None)


def _ancestors() -> set[int]:
    """Return this process and its ancestors, which are never ended."""
    ancestors, pid = set(), os.getpid()
    while pid > 0:
        ancestors.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
    return ancestors
