"""Passing cards needs the IOMMU: whether it works, whose it is to switch it on, and whether this run does."""

from __future__ import annotations

from provision.contracts.query import Unknown
from provision.contracts.rule import Evidence, Finding, Rule, UnknownYet
from provision.hosts import names as host_names
from provision.hosts.resources.kernel import KernelArguments
from provision.hosts.resources.pci import IommuStatus
from provision.inventory.kernel_line import values_of
from provision.inventory.models.hypervisor import Hypervisor
from provision.proxmox.host_facts import HypervisorFacts
from provision.proxmox.preflight.site import host_facts, managed_vms
from provision.proxmox.roles.pci_mapping import used
from provision.values.diagnostics import Diagnostic

_FIRMWARE = "Switch on VT-d (Intel) or AMD-Vi (IOMMU) in the firmware setup."
_KEYS = ("intel_iommu", "amd_iommu", "iommu")


def iommu_off(evidence: Evidence) -> list[Finding]:
    """Refuse passthrough on a host whose IOMMU stays off."""
    findings: list[Finding] = []
    for hypervisor, _ in managed_vms(evidence):
        facts = host_facts(evidence, hypervisor)
        state = facts.iommu
        if not used(evidence.inventory, hypervisor.name):
            continue
        if isinstance(state, Unknown):
            findings.append(UnknownYet(f"IOMMU of {hypervisor.name}: {state.reason}", hypervisor.name))
        elif not state.active:
            findings.append(_judged(evidence, hypervisor, facts, state))
    return findings


def _judged(
    evidence: Evidence, hypervisor: Hypervisor, facts: HypervisorFacts, state: IommuStatus
) -> Finding:
    name, line = hypervisor.name, facts.kernel_line
    off = [key for key in _KEYS if _switch(line, key) == "off"]
    if off:
        summary = f"the IOMMU of {name} is off because its kernel has {off[0]}=off"
        remedy = f"Remove {off[0]}=off from the kernel line, and reboot the host."
    elif state.table == "IVRS":
        # drivers/iommu/amd/init.c: AMD-Vi is on wherever the firmware has its table, without any argument.
        summary, remedy = (
            f"the IOMMU of {name} is off, and AMD hosts need no kernel argument for it",
            _FIRMWARE,
        )
    elif not state.table:
        summary, remedy = f"the firmware of {name} offers no IOMMU (no ACPI table DMAR or IVRS)", _FIRMWARE
    elif _switch(line, "intel_iommu") == "on":
        summary, remedy = f"the IOMMU of {name} is off although the kernel has intel_iommu=on", _FIRMWARE
    elif _is_planned(evidence, name):
        return UnknownYet(f"the IOMMU of {name} is off; intel_iommu=on comes with this run", name)
    else:
        summary = f"the IOMMU of {name} is off, and this run does not set intel_iommu=on"
        remedy = (
            f"Run `provision apply` for {name} with its step hypervisor_host, then run the command again."
        )
    return Diagnostic(
        "IOMMU_OFF",
        summary,
        name,
        evidence=(f"/proc/cmdline: {line}",),
        source=evidence.inventory.source(("hypervisors", name, "cards")),
        untouched="Nothing was changed.",
        remedy=remedy,
    )


def _switch(line: str, key: str) -> str:
    """Return the last `on` or `off` of a key: later ones win."""
    return next((value for value in reversed(values_of(line, key)) if value in ("on", "off")), "")


def _is_planned(evidence: Evidence, hypervisor: str) -> bool:
    system = host_names.ssh(hypervisor)
    return any(
        resource.key.system == system and "on" in values_of(" ".join(resource.desired), "intel_iommu")
        for resource in evidence.of_kind(KernelArguments)
    )


RULES = (
    Rule(
        ("IOMMU_OFF",),
        "a card is passed to a VM, the IOMMU is off, and this run does not switch it on",
        "switch on VT-d or AMD-Vi in the firmware setup; on Intel hosts `intel_iommu=on`",
        iommu_off,
    ),
)
