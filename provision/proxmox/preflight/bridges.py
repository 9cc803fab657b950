"""The rule about bridges of the hypervisor, of Linux, Open vSwitch and SDN."""

from __future__ import annotations

from provision.contracts.query import Unknown
from provision.contracts.rule import Evidence, Finding, Rule, UnknownYet
from provision.inventory.models.hypervisor import Hypervisor
from provision.proxmox.preflight.site import api_facts, host_facts, managed_vms
from provision.values.diagnostics import Diagnostic


def bridges(evidence: Evidence) -> list[Finding]:
    """Refuse bridges that the host does not have: PVE would only notice at the VM's start."""
    findings: list[Finding] = []
    for hypervisor, nodes in managed_vms(evidence):
        known = known_bridges(evidence, hypervisor)
        if not known:
            continue  # a host without any bridge runs no VM network of its own: nothing to compare with
        links = host_facts(evidence, hypervisor).links
        for node in nodes:
            for index, nic in enumerate(node.nics):
                bridge = nic.bridge or hypervisor.bridge
                if bridge in known:
                    continue
                if bridge in links:
                    reason = f"whether {bridge} of {hypervisor.name} is a bridge: it is a network interface"
                    findings.append(UnknownYet(reason, node.name))
                    continue
                findings.append(
                    Diagnostic(
                        "BRIDGE_MISSING",
                        f"{node.name} is connected to {bridge}, which {hypervisor.name} does not have",
                        node.name,
                        evidence=(f"bridges: {', '.join(sorted(known))}",),
                        source=evidence.inventory.source(("nodes", node.name, "nics", index)),
                        untouched="Nothing was changed.",
                        remedy="Write one of its bridges; list them on the host: `ip link show type bridge`",
                    )
                )
    return findings


def known_bridges(evidence: Evidence, hypervisor: Hypervisor) -> frozenset[str]:
    """Return the bridges that the API lists for VMs, and those that the kernel and Open vSwitch have."""
    listed = api_facts(evidence, hypervisor).bridges
    return frozenset(host_facts(evidence, hypervisor).bridges).union(
        () if isinstance(listed, Unknown) else listed
    )


RULES = (
    Rule(
        ("BRIDGE_MISSING",),
        "a network device names a bridge that the host does not have",
        "name a bridge of the host",
        bridges,
    ),
)
