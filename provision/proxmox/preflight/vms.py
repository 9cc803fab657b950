"""Rules about VMs: numbers, start at boot, locks."""

from __future__ import annotations

from provision.contracts.change import Op
from provision.contracts.query import Unknown
from provision.contracts.rule import Evidence, Finding, Rule
from provision.hosts import names
from provision.proxmox.api_facts import ApiFacts
from provision.proxmox.preflight.site import api_facts, managed_vms
from provision.proxmox.queries import vm_answer
from provision.proxmox.resources.vm import Vm
from provision.proxmox.resources.vm_lifecycle import VmAbsent, VmMarker, VmPower
from provision.values.diagnostics import Diagnostic, Severity


def vmid_taken(evidence: Evidence) -> list[Finding]:
    """Refuse a VMID that something else has."""
    findings: list[Finding] = []
    for vm in evidence.of_kind(Vm):
        snapshot = evidence.snapshots.get(vm.system)
        state = vm_answer(snapshot, vm.vmid) if snapshot is not None else None
        diagnostic = None if isinstance(state, Unknown) else vm.foreign(state)
        if diagnostic is not None:
            findings.append(diagnostic)
    return findings


def impossible(evidence: Evidence, *codes: str) -> list[Finding]:
    """Refuse what no request can bring about: a disk that shrinks, or that a snapshot needs."""
    findings: list[Finding] = []
    for vm in evidence.of_kind(Vm):
        diagnostic = evidence.impossible(vm)
        if diagnostic is not None and diagnostic.code in codes:
            findings.append(diagnostic)
    return findings


def onboot_forbidden(evidence: Evidence) -> list[Finding]:
    """Refuse start at boot for a VM that takes the card of the host's monitor."""
    findings: list[Finding] = []
    for hypervisor, nodes in managed_vms(evidence):
        for node in nodes:
            console = [
                each
                for each in node.cards
                if each in hypervisor.cards and hypervisor.cards[each].drives_console
            ]
            if console and node.starts_at_boot:
                findings.append(
                    Diagnostic(
                        "ONBOOT_FORBIDDEN",
                        f"{node.name} takes {console[0]}, which drives the monitor of {hypervisor.name},"
                        " and would start at boot",
                        node.name,
                        source=evidence.inventory.source(("nodes", node.name, "start_at_boot")),
                        untouched="Nothing was changed.",
                        remedy="Write `start_at_boot: false`: the console would go dark at every boot.",
                    )
                )
    return findings


def locked(evidence: Evidence) -> list[Finding]:
    """Warn about a VM that is to be changed while a task of Proxmox holds it: each request waits for that."""
    changed: list[Vm | VmPower | VmMarker | VmAbsent] = [
        *evidence.of_kind(Vm),
        *evidence.of_kind(VmPower),
        *evidence.of_kind(VmMarker),
        *evidence.of_kind(VmAbsent),
    ]
    held: dict[tuple[str, int], Diagnostic] = {}
    for resource in changed:
        state = ApiFacts(evidence.snapshot(resource.system)).vm(resource.vmid)
        if state is None or not state.lock or state.marker is None:
            continue
        if all(change.op is Op.ATTENTION for change in evidence.changes(resource)):
            continue
        name = state.marker.node
        held[resource.system, resource.vmid] = Diagnostic(
            "VM_LOCKED",
            f"VM {resource.vmid} of {name} is to be changed, and a task of Proxmox locks it ({state.lock})",
            name,
            source=resource.source,
            remedy="Apply once the task has ended: a change waits 2 minutes for it, and fails after that."
            f" See what holds it: `qm config {resource.vmid}`",
        )
    return list(held.values())


def management_path(evidence: Evidence) -> list[Finding]:
    """Refuse the start that takes the console away while the host cannot be reached otherwise."""
    findings: list[Finding] = []
    for power in evidence.of_kind(VmPower):
        if not power.console or power.desired != "running" or not evidence.changes(power):
            continue
        hypervisor = power.system.removesuffix("/api")
        rights = api_facts(evidence, evidence.inventory.hypervisors[hypervisor]).rights
        host = evidence.snapshots.get(names.ssh(hypervisor))
        ways = {"SSH": host is not None, "web API": not isinstance(rights, Unknown)}
        closed = [way for way, is_open in ways.items() if not is_open]
        if closed:
            findings.append(
                Diagnostic(
                    "MANAGEMENT_PATH",
                    f"starting {power.name} takes the console of {hypervisor}, which does not answer"
                    f" by {' and '.join(closed)}",
                    power.name,
                    source=power.source,
                    untouched="The VM was not started.",
                    remedy=f"Make both ways work first: ssh root@{hypervisor}, and the token of its web API.",
                )
            )
    return findings


RULES = (
    Rule(
        ("VMID_TAKEN_FOREIGN", "VM_CREATE_INTERRUPTED", "VM_ON_OTHER_NODE"),
        "a declared VMID belongs to a VM or container without this node's marker, or to one that was never"
        " finished: its task still runs, or is not known to be ours; or the VM was migrated to another node"
        " of its cluster",
        "choose another `vmid`, run `provision import INVENTORY NODE`, or remove what a dead worker left:"
        " `qm destroy VMID --skiplock 1 --purge 1 --destroy-unreferenced-disks 1` (what a task of ours left"
        " is removed by apply, with the consent `replace`); for a VM that was migrated, declare its new"
        " `hypervisor`",
        vmid_taken,
        of_resources=True,
    ),
    Rule(
        ("DISK_SHRINK", "DISK_FIXED"),
        "a disk is larger than declared, or a firmware or TPM disk is of another kind than declared",
        "declare the present size, or run `provision rebuild INVENTORY NODE`",
        lambda evidence: impossible(evidence, "DISK_SHRINK", "DISK_FIXED"),
        of_resources=True,
    ),
    Rule(
        ("VM_HAS_SNAPSHOTS",),
        "a VM must be replaced, and has snapshots that need its disk",
        "remove them: `qm listsnapshot VMID`, `qm delsnapshot VMID NAME`",
        lambda evidence: impossible(evidence, "VM_HAS_SNAPSHOTS"),
        of_resources=True,
    ),
    Rule(
        ("ONBOOT_FORBIDDEN",),
        "a VM with the card of the host's monitor would start at boot",
        "declare `start_at_boot: false`",
        onboot_forbidden,
    ),
    Rule(
        ("VM_LOCKED",),
        "a task of Proxmox VE holds a VM that this run changes",
        "wait until the task ends; each change waits for 2 minutes",
        locked,
        Severity.WARNING,
        removal=True,
        of_resources=True,
    ),
    Rule(
        ("MANAGEMENT_PATH",),
        "starting a VM would take the host's console, and SSH or the web API does not answer",
        "make SSH and the web API work first",
        management_path,
        of_resources=True,
    ),
)
