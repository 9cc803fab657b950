from __future__ import annotations

import io
from collections.abc import Callable
from typing import TextIO

from rich.console import Console

from provision.contracts import common_effects
from provision.contracts.change import Change, Key, Op
from provision.contracts.effect import Effect
from provision.contracts.remedy import ByHand
from provision.engine.model import ConsentNeed, Plan, PlannedChange, Step, StepId, StepPlan
from provision.hosts import host_effects
from provision.inventory import Subject
from provision.kube import kube_effects
from provision.report.style import make_console
from provision.values.consent import Consent
from provision.values.diagnostics import Diagnostic, Severity, Source


class Encoded(io.StringIO):
    """A stream with an encoding of our choice."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]  # the base has it as a value
        return self._encoding


def shown(show: Callable[[Console], None], *, width: int = 100, encoding: str = "utf-8") -> str:
    """Return what is printed where there is no terminal, without spaces at the ends of lines."""
    stream: TextIO = Encoded(encoding)
    show(make_console(stream, width=width))
    assert isinstance(stream, Encoded)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def step(subject: str, role: str) -> Step:
    kind = "hypervisor" if subject.startswith("pve") else "cluster" if subject == "cluster" else "node"
    return Step(StepId(role, subject), Subject(kind, subject))  # type: ignore[arg-type]  # a literal of the models


def content(old: str | None, new: str | None) -> Change:
    op = Op.CREATE if old is None else Op.DELETE if new is None else Op.UPDATE
    return Change(op, "content", old, new)


DRAIN = Effect(kube_effects.DRAIN)
REBOOT = Effect(host_effects.REBOOT_HYPERVISOR)
RESTART = Effect(host_effects.RESTART, "chrony.service")

HOST_STEP = StepPlan(
    step("pve", "hypervisor_host"),
    changes=(
        PlannedChange(
            Key("pve/ssh", "file", "/etc/modprobe.d/provision-vfio.conf"),
            (content(None, "blacklist bochs\nblacklist nouveau\n"), Change(Op.CREATE, "mode", None, "0644")),
            effects=(Effect(host_effects.INITRAMFS), REBOOT),
        ),
        PlannedChange(
            Key("pve/ssh", "kernel_arguments", "grub"),
            (Change(Op.UPDATE, "arguments", ("quiet",), ("quiet", "intel_iommu=on", "iommu=pt")),),
            effects=(Effect(host_effects.BOOT_LOADER), REBOOT),
        ),
    ),
    unchanged=7,
)
GUEST_STEP = StepPlan(
    step("vm-1", "base_os"),
    changes=(
        PlannedChange(
            Key("vm-1/ssh", "file", "/etc/chrony/chrony.conf"),
            (
                content("pool a\nkeep\nmakestep 1 3\n", "pool b\nkeep\nmakestep 1 3\n"),
                Change(Op.UPDATE, "mode", "0600", "0644"),
            ),
            effects=(RESTART,),
        ),
        PlannedChange(
            Key("vm-1/ssh", "file", "/etc/token"),
            (Change(Op.UPDATE, "content", "hunter2", "hunter3", secret=True),),
        ),
        PlannedChange(Key("vm-1/ssh", "service", "chrony"), (), effects=(RESTART,), pending=True),
        PlannedChange(Key("vm-1/ssh", "package", "telnet"), (Change(Op.DELETE, "installed", "0.17", None),)),
    ),
    unchanged=12,
)
DHCP_STEP = StepPlan(
    step("vm-1", "dhcp_reservation"),
    changes=(
        PlannedChange(
            Key("router", "reservation", "vm-1"),
            (
                Change(Op.CREATE, "address", None, "198.18.0.21"),
                Change(Op.CREATE, "mac", None, "bc:24:11:00:00:01"),
            ),
            by_hand=ByHand(("On your router, reserve:", "bc:24:11:00:00:01  198.18.0.21  vm-1")),
        ),
    ),
)
VM_STEP = StepPlan(
    step("vm-gpu", "virtual_machine"),
    changes=(
        PlannedChange(
            Key("pve/api", "vm", "vm-gpu"),
            (
                Change(Op.REPLACE, "machine", "pc", "q35"),
                Change(Op.UPDATE, "memory", 2048, 4096),
                Change(Op.ATTENTION, "cpu", None, "unknown: the API did not answer"),
            ),
            risks=(Effect(common_effects.REPLACE, "vm-gpu"),),
        ),
    ),
    unchanged=1,
)
PLAN = Plan(
    "lab",
    (
        HOST_STEP,
        DHCP_STEP,
        GUEST_STEP,
        VM_STEP,
        StepPlan(step("pve", "pci_mapping"), late="after pve has rebooted"),
        StepPlan(step("vm-gpu", "base_os"), late="after vm-gpu exists"),
        StepPlan(step("vm-gpu", "gpu_driver"), late="after vm-gpu exists"),
        StepPlan(step("vm-2", "base_os"), unreached="connection refused by 198.18.0.22"),
        StepPlan(step("vm-3", "base_os"), unreached="off by hand", excused=True),
    ),
    risks=(
        ConsentNeed("pve/api", Effect(common_effects.REPLACE, "vm-gpu"), Consent.NEVER),
        ConsentNeed("pve/ssh", REBOOT, Consent.ASK),
        ConsentNeed("vm-1/ssh", Effect(host_effects.REBOOT_GUEST), Consent.ALLOW),
        ConsentNeed("vm-2/ssh", Effect(host_effects.REBOOT_GUEST), Consent.ALLOW),
        ConsentNeed("vm-1/ssh", RESTART, Consent.ALLOW),
    ),
    warnings=(
        Diagnostic(
            "CLOCK_SKEW",
            "the clock is 12 s ahead",
            subject="vm-1",
            severity=Severity.WARNING,
            remedy="let chrony step it",
        ),
    ),
    orphans=("VM 140 old-node on pve",),
)
REFUSED = Plan(
    "lab",
    (HOST_STEP,),
    refusals=(
        Diagnostic(
            "VMID_TAKEN_FOREIGN",
            "VM 121 exists and was not made from this inventory",
            subject="vm-1",
            evidence=("name: mail", "tags: none"),
            source=Source("inventories/lab.yaml", 14, 11, "    vmid: 121", 3),
            untouched="VM 121 was left as it is",
            remedy="choose another vmid, or take it over: `provision import inventories/lab.yaml vm-1`",
        ),
    ),
)
SAME = Plan(
    "lab",
    (StepPlan(step("pve", "hypervisor_host"), unchanged=9), StepPlan(step("vm-1", "base_os"), unchanged=31)),
)
