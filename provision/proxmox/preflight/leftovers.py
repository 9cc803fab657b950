"""Lines of passthrough guides on a host that do nothing, or something else than they say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from provision.contracts.query import Unknown
from provision.contracts.rule import Evidence, Finding, Rule
from provision.hosts.queries.shell import Shell
from provision.hosts.resources.pci import PciFunction
from provision.inventory.kernel_line import folded, parse
from provision.inventory.models.hypervisor import Hypervisor
from provision.proxmox.preflight.site import host_facts, managed_vms
from provision.proxmox.roles.pci_mapping import used
from provision.values.diagnostics import Diagnostic, Severity

_FILES = (
    "/etc/modprobe.d/*.conf /etc/modules /etc/modules-load.d/*.conf /etc/initramfs-tools/modules"
    " /etc/default/grub /etc/default/grub.d/*.cfg /etc/kernel/cmdline"
)
GUIDE_LINES = Shell(rf"grep -sHnE 'vfio|iommu|pcie_acs_override|video=[a-z]*fb:' {_FILES} || true")
"""Lines about passing cards, as FILE:NUMBER:LINE."""

_ROW = re.compile(r"([^:]+):(\d+):(.*)")
_GONE = {"vfio_virqfd": "is a part of vfio since Linux 6.2"}
"""Modules that are named in older guides, and what became of them."""
_OLD_FRAMEBUFFERS = ("efifb:off", "vesafb:off", "simplefb:off", "vesa:off", "efi:off")


def leftovers(
    text: str, loader: str, functions: Sequence[PciFunction], passed: frozenset[str]
) -> Iterator[str]:
    """Yield FILE:NUMBER: LINE, with what is wrong with it.

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
            yield f"{file}:{number}: {line[:120]} ({reason})"


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
        ids = [word.partition("=")[2] for word in words if word.startswith("ids=")]
        yield from _ids(",".join(ids), functions, passed)
    elif folded(words[0]) in _GONE:
        yield _GONE[folded(words[0])]


def _arguments(line: str, functions: Sequence[PciFunction], passed: frozenset[str]) -> Iterator[str]:
    for argument in parse(line):
        if argument.name == "vfio_pci.ids":
            yield from _ids(argument.value or "", functions, passed)
        elif argument.name == "pcie_acs_override":
            yield "it makes devices look isolated that are not"
        elif argument.name == "video" and argument.value in _OLD_FRAMEBUFFERS:
            yield "it has no effect on simpledrm, which holds the console of Proxmox VE's kernels"


def _ids(text: str, functions: Sequence[PciFunction], passed: frozenset[str]) -> Iterator[str]:
    """Yield which devices of the host a list of vendor and device ids takes, or that it names none."""
    for identity in filter(None, text.split(",")):
        like = [each for each in functions if each.id == ":".join(identity.lower().split(":")[:2])]
        taken = [each.address for each in like if each.slot not in passed]
        if not like and functions:
            yield f"no device of this host is {identity}"
        elif taken:
            yield f"it takes {', '.join(taken)} from the host at boot, which no card declares"


def guide_leftovers(evidence: Evidence) -> list[Finding]:
    """Warn about lines of guides that do nothing, or take what is not declared."""
    findings: list[Finding] = []
    for hypervisor, _ in managed_vms(evidence):
        if not used(evidence.inventory, hypervisor.name):
            continue
        facts = host_facts(evidence, hypervisor)
        functions = facts.functions
        known = () if isinstance(functions, Unknown) else functions
        passed = frozenset(card.address.partition(".")[0] for card in hypervisor.cards.values())
        rows = tuple(leftovers(facts.output(GUIDE_LINES), facts.loader, known, passed))
        if rows:
            findings.append(_warning(evidence, hypervisor, rows))
    return findings


def _warning(evidence: Evidence, hypervisor: Hypervisor, rows: tuple[str, ...]) -> Diagnostic:
    return Diagnostic(
        "GUIDE_LEFTOVERS",
        f"{hypervisor.name} has {len(rows)} lines about passing cards that do not do what they say",
        hypervisor.name,
        severity=Severity.WARNING,
        evidence=rows,
        source=evidence.inventory.source(("hypervisors", hypervisor.name, "cards")),
        untouched="The lines were not changed.",
        remedy="Remove the lines that the evidence names, then run `update-initramfs -u -k all`.",
    )


RULES = (
    Rule(
        ("GUIDE_LEFTOVERS",),
        "the host has lines of passthrough guides that do nothing, or take devices that no card declares",
        "remove the lines that the evidence names, then `update-initramfs -u -k all`",
        guide_leftovers,
        severity=Severity.WARNING,
    ),
)
