"""What the rules about hypervisors and VMs look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from provision.contracts.rule import Evidence
from provision.hosts import names as host_names
from provision.inventory import Inventory
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node
from provision.proxmox import names
from provision.proxmox.host_facts import HypervisorFacts

if TYPE_CHECKING:
    from provision.proxmox.api_facts import ApiFacts
    from provision.proxmox.queries import VmState


def managed_vms(evidence: Evidence) -> Iterator[tuple[Hypervisor, tuple[Node, ...]]]:
    """Yield each hypervisor that the rules look at with its managed VMs."""
    for hypervisor in evidence.inventory.hypervisors.values():
        if _is_covered(evidence, hypervisor):
            yield hypervisor, managed_vms_of(evidence.inventory, hypervisor)


def managed_vms_or_changed(evidence: Evidence) -> Iterator[tuple[Hypervisor, tuple[Node, ...]]]:
    """Yield as `managed_vms`, and without VMs each other hypervisor that desired states are on."""
    for hypervisor in evidence.inventory.hypervisors.values():
        if _is_covered(evidence, hypervisor):
            yield hypervisor, managed_vms_of(evidence.inventory, hypervisor)
        elif evidence.of_system(names.api(hypervisor.name)):
            yield hypervisor, ()


def _is_covered(evidence: Evidence, hypervisor: Hypervisor) -> bool:
    return evidence.covers(names.api(hypervisor.name), host_names.ssh(hypervisor.name))


def managed_vms_of(inventory: Inventory, hypervisor: Hypervisor) -> tuple[Node, ...]:
    """Return the managed VMs of a hypervisor."""
    return tuple(node for node in names.nodes_of(inventory, hypervisor.name) if node.manage)


def host_facts(evidence: Evidence, hypervisor: Hypervisor) -> HypervisorFacts:
    """Return what a hypervisor's host said."""
    return HypervisorFacts(evidence.snapshot(host_names.ssh(hypervisor.name)))


def api_facts(evidence: Evidence, hypervisor: Hypervisor) -> ApiFacts:
    """Return what a hypervisor's API said."""
    from provision.proxmox.api_facts import ApiFacts  # noqa: PLC0415 - slow, see the table of domains

    return ApiFacts(evidence.snapshot(names.api(hypervisor.name)))


def own_vm(evidence: Evidence, hypervisor: Hypervisor, node: Node) -> VmState | None:
    """Return a node's own VM, if it is there."""
    state = api_facts(evidence, hypervisor).vm(node.vmid) if node.vmid is not None else None
    if state is None or state.marker_of(evidence.inventory.name, node.name) is None:
        return None
    return state
