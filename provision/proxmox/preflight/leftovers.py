"""The rule about lines of passthrough guides that do nothing, or something else than they say."""

from __future__ import annotations

from provision.contracts.rule import Evidence, Finding, Rule
from provision.inventory.models.hypervisor import Hypervisor
from provision.proxmox.guide_lines import guide_lines
from provision.proxmox.preflight.site import host_facts, managed_vms
from provision.proxmox.roles.hypervisor_host import removes_lines
from provision.proxmox.roles.pci_mapping import used
from provision.values.diagnostics import Diagnostic, Severity


def guide_leftovers(evidence: Evidence) -> list[Finding]:
    """Warn about lines of guides that do nothing, or take what is not declared."""
    findings: list[Finding] = []
    for hypervisor, _ in managed_vms(evidence):
        if not used(evidence.inventory, hypervisor.name):
            continue
        lines = guide_lines(host_facts(evidence, hypervisor), hypervisor)
        rows = tuple(str(line) for line in lines if not (line.is_removable and removes_lines(hypervisor)))
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
        remedy="Write `guide_lines: comment_out` of the hypervisor, or remove the lines by hand and run"
        " `update-initramfs -u -k all`. Lines of boot loaders are always left to you.",
    )


RULES = (
    Rule(
        ("GUIDE_LEFTOVERS",),
        "the host has lines of passthrough guides that do nothing, or take devices that no card declares",
        "declare `guide_lines: comment_out`, or remove the lines and run `update-initramfs -u -k all`",
        guide_leftovers,
        severity=Severity.WARNING,
    ),
)
