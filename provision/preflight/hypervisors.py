"""All rules that only a site with hypervisors can break, and what they look at."""

from __future__ import annotations

from typing import Any

from provision.facts.host import MEMORY, PROCESSORS
from provision.facts.hypervisor import STORAGES, VM_DEVICES
from provision.inventory import Inventory
from provision.preflight import access, cards, hosts, network, vms
from provision.preflight.model import Rule
from provision.resources.host.pci import IommuState, PciFunctions
from provision.resources.host.query_kernel import CMDLINE
from provision.resources.host.query_system import Bridges
from provision.resources.proxmox.queries import Permissions, VmConfig, VmList
from provision.roles import names
from provision.roles.pci_mapping import used

RULES: tuple[Rule, ...] = (*access.RULES, *vms.RULES, *hosts.RULES, *cards.RULES, *network.RULES)


def evidence(inventory: Inventory) -> dict[str, tuple[Any, ...]]:
    """Return the questions that these rules look at beyond those of roles, by system."""
    found: dict[str, tuple[Any, ...]] = {}
    for hypervisor in inventory.hypervisors.values():
        nodes = names.nodes_of(inventory, hypervisor.name)
        host: list[Any] = []
        if nodes:
            host += [MEMORY, PROCESSORS, STORAGES, Bridges(), VM_DEVICES]
            own = tuple(VmConfig(node.vmid) for node in nodes if node.manage and node.vmid is not None)
            found[names.api(hypervisor.name)] = (Permissions(), VmList(), *own)
        if used(inventory, hypervisor.name):
            host += [PciFunctions(), IommuState(), CMDLINE]
        found[names.ssh(hypervisor.name)] = tuple(host)
    return found
