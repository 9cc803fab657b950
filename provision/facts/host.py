"""What roles and rules know of a host: a typed view over its snapshot."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from provision.resources.contracts import CannotTell, Pending, Snapshot
from provision.resources.host.filesystem import RootChain, RootStatus
from provision.resources.host.kernel import CMDLINE
from provision.resources.host.query_file import FileText
from provision.resources.host.query_kernel import BootState, BootStatus
from provision.resources.host.query_system import ClockState, ClockStatus

OS_RELEASE = FileText("/etc/os-release")
MEMINFO = FileText("/proc/meminfo")
CPUS = FileText("/sys/devices/system/cpu/online")

HOST_FACTS: tuple[Any, ...] = (OS_RELEASE, MEMINFO, CPUS, CMDLINE, BootState(), RootChain(), ClockState())
"""The questions behind HostFacts."""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What a host is. What could not be read is empty, zero or None; `unreadable` says why.

    Args:
        os_id: `debian`, `ubuntu`.
        os_version: `12`, `24.04`.
        os_name: as the distribution writes it.
        memory: MiB of RAM that the kernel has.
        memory_available: MiB that could be given to programs now.
        cpus: processors that are online.
        cmdline: arguments of the running kernel.
        boot: firmware, boot loader, kernels.
        root: devices under the root filesystem.
        clock: whether the clock is synchronised; container.
        pending: effects that an earlier run owes.
        unreadable: reasons, one for each question without an answer.
    """

    os_id: str = ""
    os_version: str = ""
    os_name: str = ""
    memory: int = 0
    memory_available: int = 0
    cpus: int = 0
    cmdline: tuple[str, ...] = ()
    boot: BootStatus | None = None
    root: RootStatus | None = None
    clock: ClockStatus | None = None
    pending: tuple[Pending, ...] = ()
    unreadable: tuple[str, ...] = ()

    @property
    def kernel(self) -> str:
        """Release of the running kernel."""
        return self.boot.running if self.boot is not None else ""

    @property
    def kernels(self) -> tuple[str, ...]:
        """Installed kernel releases."""
        return self.boot.kernels if self.boot is not None else ()

    @property
    def loader(self) -> str:
        """Boot loader: grub, systemd-boot, none; `unknown` when it could not be read."""
        return self.boot.loader if self.boot is not None else "unknown"

    @property
    def container(self) -> bool:
        """Whether the host is a container: its kernel and clock are another machine's."""
        return self.clock is not None and bool(self.clock.container)


def host_facts(seen: Snapshot) -> HostFacts:
    """Return the facts of a host; questions that were not asked count as not answered."""
    answers = {query: seen.answers.get(query, CannotTell("it was not asked")) for query in HOST_FACTS}
    unreadable = tuple(
        f"{query.kind}: {answer.reason}"
        for query, answer in answers.items()
        if isinstance(answer, CannotTell)
    )
    release = os_release(_text(answers[OS_RELEASE]))
    memory = _meminfo(_text(answers[MEMINFO]))
    boot, root, clock = answers[BootState()], answers[RootChain()], answers[ClockState()]
    return HostFacts(
        release.get("ID", ""),
        release.get("VERSION_ID", ""),
        release.get("PRETTY_NAME", ""),
        memory.get("MemTotal", 0),
        memory.get("MemAvailable", 0),
        _count(_text(answers[CPUS])),
        tuple(_text(answers[CMDLINE]).split()),
        boot if isinstance(boot, BootStatus) else None,
        root if isinstance(root, RootStatus) else None,
        clock if isinstance(clock, ClockStatus) else None,
        seen.pending,
        unreadable,
    )


def _text(answer: object) -> str:
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else ""


def os_release(text: str) -> dict[str, str]:
    """Return the fields of os-release(5), without their quotes."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        name, mark, value = line.strip().partition("=")
        if not mark or name.startswith("#"):
            continue
        try:
            words = shlex.split(value)
        except ValueError:
            continue
        found[name] = words[0] if words else ""
    return found


def _meminfo(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in text.split("\n"):
        name, mark, rest = line.partition(":")
        fields = rest.split()
        if mark and fields and fields[0].isdigit():
            found[name] = int(fields[0]) // 1024
    return found


def _count(ranges: str) -> int:
    """Return how many numbers a kernel list like `0-3,8` holds."""
    total = 0
    for part in ranges.strip().split(","):
        low, _, high = part.partition("-")
        if low.isdigit() and (high or low).isdigit():
            total += int(high or low) - int(low) + 1
    return total
