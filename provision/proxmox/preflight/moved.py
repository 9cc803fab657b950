"""The rule about VMs that are on another hypervisor than declared, where these are no cluster.

Nodes of a cluster know each other's VMs: there the answer about a VM says where it is (`VM_ON_OTHER_NODE`).
Hosts of their own do not, and a VM that was declared on another one would be made there a second time, with
the same address.
"""

from __future__ import annotations

from provision.contracts.query import Unknown
from provision.contracts.rule import Evidence, Finding, Rule
from provision.inventory import Inventory
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node
from provision.proxmox.preflight.site import api_facts, own_vm
from provision.proxmox.queries import Elsewhere, Strays, VmConfig, VmState
from provision.proxmox.resources.vm_owner import migration
from provision.values.diagnostics import Diagnostic, Severity


def questions(inventory: Inventory) -> tuple[Strays, ...]:
    """Return what to ask each hypervisor: nothing where there is only one."""
    return (inventory.derived(_strays),) if len(inventory.hypervisors) > 1 else ()


def _strays(inventory: Inventory) -> Strays:
    return Strays(frozenset(node.vmid for node in inventory.nodes.values() if node.vmid is not None))


def on_other_hypervisor(evidence: Evidence) -> list[Finding]:
    """Refuse a VM that another hypervisor has: provision does not migrate VMs, and would make it again."""
    inventory = evidence.inventory
    findings: list[Finding] = []
    for hypervisor in inventory.hypervisors.values():
        for query in questions(inventory):
            states = api_facts(evidence, hypervisor).answer(query)
            for state in () if isinstance(states, Unknown) else states:
                node = inventory.nodes.get(state.marker.node) if state.marker is not None else None
                if node is None or node.vmid != state.vmid or not node.manage:
                    continue
                declared = inventory.hypervisor_of(node)
                is_ours = state.marker_of(inventory.name, node.name) is not None
                if is_ours and declared is not None and declared.name != hypervisor.name:
                    findings += _found(evidence, node, state, hypervisor, declared)
    return findings


def _found(
    evidence: Evidence, node: Node, state: VmState, present: Hypervisor, declared: Hypervisor
) -> list[Finding]:
    inventory, vmid = evidence.inventory, state.vmid
    if isinstance(api_facts(evidence, declared).answer(VmConfig(vmid)), Elsewhere):
        return []  # one cluster: VM_ON_OTHER_NODE
    source = inventory.source(("nodes", node.name, "hypervisor"))
    devices = tuple(f"device of {present.name}: {key}" for key in state.local_devices)
    removal = f"on {present.name}: `qm destroy {vmid} --purge 1`"
    if own_vm(evidence, declared, node) is not None and not state.running:
        return [
            Diagnostic(
                "VM_ON_OTHER_HYPERVISOR",
                f"{present.name} still has VM {vmid} of {node.name}, which is on {declared.name} now",
                node.name,
                Severity.WARNING,
                evidence=devices,
                source=source,
                remedy=f"Both have one MAC address: never start the old one. Remove it {removal}",
            )
        ]
    moved = migration(vmid, "NODE", state.local_devices).partition("`qm migrate")[0].removesuffix(", then ")
    detached = f" First detach its devices: {moved}." if state.local_devices else ""
    return [
        Diagnostic(
            "VM_ON_OTHER_HYPERVISOR",
            f"{node.name} is declared on {declared.name}, and {present.name} has its VM {vmid}",
            node.name,
            evidence=(f"VM {vmid} of {present.name} is {state.status}", *devices),
            source=source,
            untouched="It was not changed, and no second one was made.",
            remedy=f"Write `hypervisor: {present.name}`, or bring the VM to {declared.name} yourself"
            f" (`qm remote-migrate`, or a backup that is restored there).{detached} To create it again on"
            f" {declared.name}, remove it {removal}",
        )
    ]


RULES = (
    Rule(
        ("VM_ON_OTHER_HYPERVISOR",),
        "another hypervisor of the inventory has the VM of a node: provision does not migrate VMs, and"
        " creates no second one; a warning if the old one is off and the declared hypervisor has one, too",
        "declare the `hypervisor` that has it, or move the VM yourself: `qm shutdown VMID`, detach devices of"
        " the host with `qm set VMID --delete hostpciN`, then `qm remote-migrate`; remove an old one"
        " with `qm destroy VMID --purge 1`",
        on_other_hypervisor,
        removal=True,
    ),
)
