"""Facts of a host, for roles and rules."""

from __future__ import annotations

import re

from provision.contracts.query import Unknown
from provision.hosts.queries.file import FileText
from provision.hosts.queries.identity import Identity, MachineIdentity
from provision.hosts.queries.kernel import CMDLINE, BootLoader
from provision.hosts.queries.shell import Shell, ShellResult
from provision.hosts.queries.system import ClockState, ClockStatus
from provision.hosts.resources.pci import PciFunction, PciFunctions
from provision.hosts.view import View

MACHINE_ID = FileText("/etc/machine-id")
MEMORY = FileText("/proc/meminfo")
PROCESSORS = FileText("/sys/devices/system/cpu/online")


class HostFacts(View):
    """The facts of a host."""

    __slots__ = ()

    def text(self, query: FileText) -> str | Unknown:
        """Return the content of a file; a missing file is Unknown."""
        answer = self.answer(query)
        if isinstance(answer, Unknown):
            return answer
        if isinstance(answer, bytes):
            return answer.decode(errors="replace")
        return Unknown("there is no such file")

    def output(self, query: Shell) -> str:
        """Return what a command printed, nothing if it failed."""
        result = self.known(query, ShellResult, ShellResult(1, b"", b""))
        return "" if result.rc else result.stdout.decode(errors="replace")

    @property
    def machine_id(self) -> str:
        """Of machine-id(5), empty when it is not known: MACHINE_ID."""
        text = self.text(MACHINE_ID)
        return "" if isinstance(text, Unknown) else text.strip()

    @property
    def identity(self) -> MachineIdentity | Unknown:
        """Which machine this is: Identity."""
        return self.answer_as(Identity(), MachineIdentity)

    @property
    def memory(self) -> int | Unknown:
        """MiB of RAM that the kernel has: MEMORY."""
        text = self.text(MEMORY)
        if isinstance(text, Unknown):
            return text
        match = re.search(r"^MemTotal:\s+([0-9]+) kB", text, re.MULTILINE)
        return int(match[1]) // 1024 if match else Unknown("no MemTotal")

    @property
    def processors(self) -> int | Unknown:
        """How many processors are online: PROCESSORS, a list of ranges (`0-3,8`)."""
        text = self.text(PROCESSORS)
        if isinstance(text, Unknown):
            return text
        total = 0
        for part in text.strip().split(","):
            first, _, last = part.partition("-")
            if not (first.isdecimal() and (last or first).isdecimal()):
                return Unknown("no list of processors")
            total += int(last or first) - int(first) + 1
        return total

    @property
    def kernel_line(self) -> str:
        """Arguments of the running kernel, empty when they are not known: CMDLINE."""
        text = self.text(CMDLINE)
        return "" if isinstance(text, Unknown) else text.strip()

    @property
    def loader(self) -> str:
        """`grub`, `systemd-boot`, `none`, or `unknown`: BootLoader."""
        return self.known(BootLoader(), str, "unknown")

    @property
    def container(self) -> bool:
        """Whether it is known to be a container, with the kernel and clock of another machine: ClockState."""
        return bool(self.known(ClockState(), ClockStatus, ClockStatus(synchronised=False)).container)

    @property
    def functions(self) -> tuple[PciFunction, ...] | Unknown:
        """All PCI functions: PciFunctions."""
        return self.answer_as(PciFunctions(), tuple)
