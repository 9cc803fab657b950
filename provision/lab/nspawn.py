"""A systemd-nspawn container: overlay on the shared root filesystem, own network, state kept over reboots."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from provision.lab import netns, processes
from provision.lab.contracts import GuestError
from provision.lab.recipe import ASSETS, link
from provision.lab.settings import machine_wide, namespace

_START_DEADLINE = 120.0
_HALT = signal.SIGRTMIN + 3  # systemd(1): starts halt.target
_PRESS_AGAIN = 5.0


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a lab.

    Args:
        lab: the lab's folder.
        key: its short name inside the lab (`router`, `hypervisor`, a VMID).
        hostname: the host name; also names the console log.
        rootfs: the read-only root filesystem below the overlay.
        macs: hardware addresses of eth0, eth1, ...
    """

    lab: Path
    key: str
    hostname: str
    rootfs: Path
    macs: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """The container's own folder."""
        return self.lab / "guests" / self.key

    @property
    def upper(self) -> Path:
        """The overlay's upper folder: files that differ from the shared root filesystem."""
        return self.folder / "upper"

    @property
    def console(self) -> Path:
        """The console log."""
        return self.lab / "console" / f"{self.hostname}.log"

    def pid(self) -> int | None:
        """Return the process that supervises the container, or None."""
        return processes.read_pid(self.folder / "pid")

    def write(self, name: str, text: str, mode: int = 0o644, owner: int = 0) -> None:
        """Write a file of a container that is off; new folders are as in the shared root filesystem."""
        path = self.upper / name
        _make_folders(self.rootfs, self.upper, path.parent)
        fresh = path.with_name(f".{path.name}.new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w") as out:
            out.write(text)
        fresh.chmod(mode)
        os.chown(fresh, owner, owner)
        fresh.replace(path)

    def enable(self, unit: str, target: str = "multi-user.target") -> None:
        """Enable a unit of a container that is off."""
        source = "/etc/systemd/system" if (self.upper / "etc/systemd/system" / unit).exists() else None
        name = f"etc/systemd/system/{target}.wants/{unit}"
        _make_folders(self.rootfs, self.upper, (self.upper / name).parent)
        link(self.upper, name, f"{source or '/lib/systemd/system'}/{unit}")

    def lay_clock(self) -> None:
        """Configure chronyd not to set the clock: a container shares the machine's clock."""
        self.write("etc/default/chrony", 'DAEMON_OPTS="-F 1 -x"\n')
        self.write("etc/systemd/system/chrony.service.d/lab.conf", "[Unit]\nConditionCapability=\n")

    def read(self, name: str) -> str | None:
        """Return a file of the container as it is now, or None."""
        for root in (self.upper, self.rootfs):
            with contextlib.suppress(OSError):
                return (root / name).read_text()
        return None

    def start(self) -> None:
        """Start the container; return as soon as its process runs.

        Raises:
            GuestError: it runs already, or it did not start; the text has the supervisor's output.
        """
        if self.pid() is not None:
            raise GuestError(f"container {self.key} already running")
        for index, mac in enumerate(self.macs):
            netns.add_veth(self.lab, self.key, index, mac)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.console.parent.mkdir(exist_ok=True)
        with self.console.open("a") as log:
            log.write(f"--- start of {self.hostname} (container)\n")
        (self.folder / "pid").unlink(missing_ok=True)
        argv = [
            "unshare", "--mount", "--propagation", "private", "sh", str(ASSETS / "supervise.sh"),
            str(self.folder), str(self.rootfs), str(netns.path(namespace(self.lab, self.key))),
            f"{self.lab.name}-{self.key}", f"{machine_wide(self.lab)}/{self.key}", str(self.console),
        ]  # fmt: skip
        env = {
            **processes.environment(self.lab),
            # Only /proc/sys/net belongs to the container; the other settings are the machine's.
            "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network",
        }
        errors = self.folder / "supervisor.log"
        with errors.open("w") as err:
            supervisor = subprocess.Popen(
                argv, env=env, stdin=subprocess.DEVNULL, stdout=err, stderr=err, start_new_session=True
            )
        deadline = time.monotonic() + _START_DEADLINE
        while self.pid() is None:
            ended = supervisor.poll()
            if ended is not None or time.monotonic() > deadline:
                failure = (
                    f"timeout of {_START_DEADLINE:.0f} s"
                    if ended is None
                    else f"its supervisor exited with {ended}"
                )
                output = errors.read_text().strip()[-500:] or "no output"
                raise GuestError(f"container {self.key} did not start ({failure}): {output}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Kill the container."""
        pid = self.pid()
        if pid is not None:
            inside = self._inside()
            processes.end({pid}, grace=0)
            processes.end(inside, grace=0)
        processes.remove_cgroups(self.lab, self.key)
        netns.remove_ports(self.lab, self.key)

    def shutdown(self, timeout: float) -> bool:
        """Ask the container's init to shut down; False if it still runs after `timeout` seconds."""
        pid = self.pid()
        if pid is None:
            return True
        deadline = time.monotonic() + timeout
        pressed = 0.0
        while self.pid() == pid:
            # An init that has just started ignores the signal, so it is sent again.
            if time.monotonic() - pressed > _PRESS_AGAIN:
                pressed = time.monotonic()
                for init in (child for nspawn in _children(pid) for child in _children(nspawn)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(init, _HALT)
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        self.stop()
        return True

    def forget(self) -> None:
        """Remove everything of a container that is off, except its console log."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _inside(self) -> set[int]:
        """Return systemd-nspawn and the processes in the container's network namespace."""
        pids: set[int] = set()
        inner = namespace(self.lab, self.key)
        if netns.exists(inner):
            inode = netns.path(inner).stat().st_ino
            for entry in Path("/proc").iterdir():
                with contextlib.suppress(OSError):
                    if entry.name.isdigit() and (entry / "ns/net").stat().st_ino == inode:
                        pids.add(int(entry.name))
        return pids


def _children(pid: int) -> set[int]:
    try:
        return {int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    except OSError:
        return set()


def _make_folders(lower: Path, upper: Path, folder: Path) -> None:
    """Create folders in an overlay's upper folder with mode and owner of those in the lower one."""
    parts = folder.relative_to(upper).parts
    upper.mkdir(parents=True, exist_ok=True)
    upper.chmod(0o755)
    for index in range(1, len(parts) + 1):
        below = Path(*parts[:index])
        directory = upper / below
        if directory.is_dir():
            continue
        directory.mkdir()
        directory.chmod(0o755)
        if (lower / below).is_dir():
            shutil.copymode(lower / below, directory)
            owner = (lower / below).stat()
            os.chown(directory, owner.st_uid, owner.st_gid)
