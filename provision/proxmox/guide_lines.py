"""Lines of passthrough guides on a host that do nothing, or something else than they say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from provision.contracts.query import Unknown
from provision.hosts.queries.modprobe import vfio_ids
from provision.hosts.queries.shell import Shell
from provision.hosts.resources.pci import PciFunction, matches
from provision.inventory.kernel_line import folded, parse
from provision.inventory.models.hypervisor import Hypervisor
from provision.proxmox.host_facts import HypervisorFacts

_FILES = (
    "/etc/modprobe.d/*.conf /etc/modules /etc/modules-load.d/*.conf /etc/initramfs-tools/modules"
    " /etc/default/grub /etc/default/grub.d/*.cfg /etc/kernel/cmdline"
)
GUIDE_LINES = Shell(rf"grep -sHnE 'vfio|iommu|pcie_acs_override|video=[a-z]*fb:' {_FILES} || true")
"""Lines about passing cards, as FILE:NUMBER:LINE."""

_ROW = re.compile(r"([^:]+):(\d+):(.*)")
_GONE = {"vfio_virqfd": "is a part of vfio since Linux 6.2"}
"""Modules that are named in older guides, and what became of them."""
_OLD_FRAMEBUFFERS = frozenset({"efifb:off", "vesafb:off", "simplefb:off", "vesa:off", "efi:off"})
_INITRAMFS = "/etc/initramfs-tools/modules"


@dataclass(frozen=True, slots=True)
class GuideLine:
    """A line that does not do what it says.

    Args:
        file: absolute path.
        number: of the line in it.
        line: without blanks around it.
        reason: what is wrong with it.
        is_removable: nothing is lost if it becomes a comment: it names a module that is gone, or devices
            none of which is declared. Lines of boot loaders and with other options are left to a person.
    """

    file: str
    number: str
    line: str
    reason: str
    is_removable: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.number}: {self.line[:120]} ({self.reason})"


def guide_lines(facts: HypervisorFacts, hypervisor: Hypervisor) -> tuple[GuideLine, ...]:
    """Return the lines of a host that do not do what they say; none while they are not known."""
    functions = facts.functions
    known = () if isinstance(functions, Unknown) else functions
    passed = frozenset(card.address.partition(".")[0] for card in hypervisor.cards.values())
    return tuple(leftovers(facts.output(GUIDE_LINES), facts.loader, known, passed))


def leftovers(
    text: str, loader: str, functions: Sequence[PciFunction], passed: frozenset[str]
) -> Iterator[GuideLine]:
    """Yield the lines with what is wrong with them.

    Args:
        text: answer to GUIDE_LINES.
        loader: boot loader of the host.
        functions: PCI functions of the host.
        passed: slots of the cards that are declared.
    """
    for row in map(_ROW.fullmatch, text.splitlines()):
        if row is None:
            continue
        file, number, line = row[1], row[2], row[3].strip()
        if not line or line.startswith("#") or "/provision-" in file or file.endswith("50-provision.cfg"):
            continue
        for reason in _reasons(file, line, loader, functions, passed):
            yield GuideLine(file, number, line, reason, _is_removable(line, functions, passed))


def _is_removable(line: str, functions: Sequence[PciFunction], passed: frozenset[str]) -> bool:
    words = line.split()
    if words[0] != "options":
        return folded(words[0]) in _GONE
    ids = vfio_ids(words[2:])
    is_declared = any(
        matches(identity, each) for identity in ids for each in functions if each.slot in passed
    )
    return all(word.startswith("ids=") for word in words[2:]) and bool(functions) and not is_declared


def _reasons(
    file: str, line: str, loader: str, functions: Sequence[PciFunction], passed: frozenset[str]
) -> Iterator[str]:
    is_grub = file.startswith("/etc/default/grub")
    if is_grub or file == "/etc/kernel/cmdline":
        other = "systemd-boot" if is_grub else "grub"
        if loader == other:
            yield f"this host boots by {'systemd-boot' if is_grub else 'GRUB'}, which does not read this file"
            return
        yield from _arguments(line.partition("=")[2].strip("\"'") if is_grub else line, functions, passed)
        return
    words = line.split()
    if words[0] == "options" and len(words) > 1 and folded(words[1]) == "vfio_pci":
        yield from _ids(vfio_ids(words[2:]), functions, passed)
    elif (
        file == _INITRAMFS and folded(words[0]) == "vfio_pci"
    ):  # of the lists of modules, this one has options
        yield from _ids(vfio_ids(words[1:]), functions, passed)
    elif folded(words[0]) in _GONE:
        yield _GONE[folded(words[0])]


def _arguments(line: str, functions: Sequence[PciFunction], passed: frozenset[str]) -> Iterator[str]:
    for argument in parse(line):
        if argument.name == "vfio_pci.ids":
            yield from _ids(argument.members, functions, passed)
        elif argument.name == "pcie_acs_override":
            yield "it makes devices look isolated that are not"
        elif argument.name == "video" and set(argument.members) & _OLD_FRAMEBUFFERS:
            yield "it has no effect on simpledrm, which holds the console of Proxmox VE's kernels"


def _ids(
    identities: Iterable[str], functions: Sequence[PciFunction], passed: frozenset[str]
) -> Iterator[str]:
    """Yield which devices of the host a list of vendor and device ids takes, or that it names none."""
    for identity in identities:
        like = [each for each in functions if matches(identity, each)]
        taken = [each.address for each in like if each.slot not in passed]
        if not like and functions:
            yield f"no device of this host is {identity}"
        elif taken:
            yield f"it takes {', '.join(taken)} from the host at boot, which no card declares"
