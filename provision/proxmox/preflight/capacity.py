"""Rules about hypervisors: memory and processors."""

from __future__ import annotations

from provision.contracts.query import Unknown
from provision.contracts.rule import Evidence, Finding, Rule, UnknownYet
from provision.proxmox.preflight.site import api_facts, host_facts, managed_vms
from provision.values.diagnostics import Diagnostic
from provision.values.sizes import format_size


def memory(evidence: Evidence) -> list[Finding]:
    """Refuse more memory than the host has: declared VMs, others that run, and what the host keeps."""
    findings: list[Finding] = []
    for hypervisor, nodes in managed_vms(evidence):
        declared = {node.name: node.memory for node in nodes if node.memory and node.power_state != "stopped"}
        if not declared:
            continue
        total, entries = host_facts(evidence, hypervisor).memory, api_facts(evidence, hypervisor).vms
        if isinstance(total, Unknown) or isinstance(entries, Unknown):
            reason = total.reason if isinstance(total, Unknown) else "no VM list"
            findings.append(UnknownYet(f"memory of {hypervisor.name}: {reason}", hypervisor.name))
            continue
        own = {node.vmid for node in nodes}
        others = [
            (each.name, each.memory) for each in entries if each.status == "running" and each.vmid not in own
        ]
        kept = hypervisor.reserve_memory or 0
        need = sum(declared.values()) + sum(size for _, size in others) + kept
        if need <= total:
            continue
        rows = [f"{name}: {format_size(size)}" for name, size in (*declared.items(), *others)]
        rows.append(f"the host keeps: {format_size(kept)}")
        findings.append(
            Diagnostic(
                "HOST_MEMORY_OVERCOMMIT",
                f"{hypervisor.name} has {format_size(total)} of memory, {format_size(need)} are asked of it",
                hypervisor.name,
                evidence=tuple(rows),
                source=evidence.inventory.source(("hypervisors", hypervisor.name)),
                untouched="Nothing was changed.",
                remedy="Give the VMs less memory, or stop VMs that are not needed.",
            )
        )
    return findings


def cores(evidence: Evidence) -> list[Finding]:
    """Refuse VMs with more processors than the host: PVE would refuse their start."""
    findings: list[Finding] = []
    for hypervisor, nodes in managed_vms(evidence):
        have = host_facts(evidence, hypervisor).processors
        if isinstance(have, Unknown):
            continue
        for node in nodes:
            want = (node.cores or 1) * (node.sockets or 1)
            if want > have:
                findings.append(
                    Diagnostic(
                        "CORES_EXCEED_HOST",
                        f"{node.name} has {want} processors and {hypervisor.name} only {have}",
                        node.name,
                        source=evidence.inventory.source(("nodes", node.name, "cores")),
                        untouched="Nothing was changed.",
                        remedy=f"Give it at most {have}.",
                    )
                )
    return findings


RULES = (
    Rule(
        ("HOST_MEMORY_OVERCOMMIT",),
        "declared VMs, other running VMs and `reserve_memory` add up to more than the host's memory",
        "give the VMs less memory, or stop some",
        memory,
    ),
    Rule(("CORES_EXCEED_HOST",), "a VM has more processors than its host", "declare fewer cores", cores),
)
