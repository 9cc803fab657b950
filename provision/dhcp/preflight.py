"""Rules about addresses: MACs and leases."""

from __future__ import annotations

from provision.contracts.rule import Evidence, Finding, Rule
from provision.dhcp.resources.reservation import RouterReservation
from provision.hosts import names as host_names
from provision.proxmox import formats, macs
from provision.proxmox.preflight.site import host_facts, managed_vms, managed_vms_of, own_vm
from provision.values.diagnostics import Diagnostic


def mac_duplicate(evidence: Evidence) -> list[Finding]:
    """Refuse a MAC that two devices have: PVE does not notice."""
    holders: dict[str, dict[str, str]] = {}
    # Several hypervisors may be nodes of one Proxmox cluster, where each shows the VMs of all.
    hypervisors = [
        (hypervisor, managed_vms_of(evidence.inventory, hypervisor))
        for hypervisor in evidence.inventory.hypervisors.values()
    ]
    managed = {(hypervisor.node_name, node.vmid) for hypervisor, nodes in hypervisors for node in nodes}
    for hypervisor, nodes in hypervisors if any(managed_vms(evidence)) else ():
        own = {node.vmid for node in nodes}
        for node in nodes:
            for index in range(len(node.nics)):
                mac = macs.of_node(evidence.inventory, node, index, own_vm(evidence, hypervisor, node))
                holders.setdefault(mac, {})[f"net{index} of {node.name}"] = node.name
        for device in host_facts(evidence, hypervisor).vm_devices:
            is_ours = device.vmid in own or (device.node, device.vmid) in managed
            if device.key.startswith("net") and not is_ours:
                mac = formats.normal(device.value, formats.NET).get("macaddr", "")
                state = " (after its next start)" if device.pending else " (until it stops)"
                state = state if device.pending or device.leaving else ""
                holders.setdefault(mac, {})[f"{device.key} of VM {device.vmid}{state}"] = ""
    findings: list[Finding] = []
    for mac, devices in holders.items():
        ours = [node for node in devices.values() if node]
        if mac and ours and len(devices) > 1:
            findings.append(
                Diagnostic(
                    "MAC_DUPLICATE",
                    f"{mac} belongs to {' and '.join(devices)}",
                    ours[0],
                    source=evidence.inventory.source(("nodes", ours[0], "nics")),
                    untouched="Nothing was changed.",
                    remedy="Give one of them another MAC.",
                )
            )
    return findings


def leased_to_other(evidence: Evidence) -> list[Finding]:
    """Refuse an address that the router has reserved for, or leased to, somebody else."""
    findings: list[Finding] = []
    for reservation in evidence.of_kind(RouterReservation):
        diagnostic = evidence.impossible(reservation)
        if diagnostic is not None and diagnostic.code == "IP_LEASED_TO_OTHER":
            findings.append(diagnostic)
    return findings


def mac_unknown(evidence: Evidence) -> list[Finding]:
    """Refuse to reserve a hypervisor's address where its bridge, whose MAC that takes, does not exist."""
    if evidence.inventory.dhcp_backend is None:
        return []
    findings: list[Finding] = []
    for hypervisor in evidence.inventory.hypervisors.values():
        query, system = macs.of_bridge(hypervisor), host_names.ssh(hypervisor.name)
        if not hypervisor.reserve_address or hypervisor.mac or not evidence.covers(system):
            continue
        snapshot = evidence.snapshots.get(system)
        if snapshot is not None and not snapshot.missing((query,)) and snapshot[query] is None:
            findings.append(macs.unknown_of_bridge(evidence.inventory, hypervisor))
    return findings


RULES = (
    Rule(
        ("MAC_DUPLICATE",),
        "two network devices have the same MAC",
        "give one of them another MAC",
        mac_duplicate,
    ),
    Rule(
        ("MAC_UNKNOWN",),
        "a hypervisor with `reserve_address` does not have the bridge whose MAC address is to be reserved",
        "declare it: `hypervisors.NAME.mac`, or name the right `bridge`",
        mac_unknown,
    ),
    Rule(
        ("IP_LEASED_TO_OTHER",),
        "the router has reserved a declared address for another MAC, or leased it to one",
        "choose another address, or free it on the router",
        leased_to_other,
        of_resources=True,
    ),
)
