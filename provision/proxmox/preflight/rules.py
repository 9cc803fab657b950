"""All rules that only a site with hypervisors can break, and what they look at."""

from __future__ import annotations

from typing import Any

from provision.contracts.rule import Rule
from provision.hosts import names as host_names
from provision.hosts.facts import MEMORY, PROCESSORS
from provision.hosts.queries.kernel import CMDLINE, BootLoader
from provision.hosts.queries.system import Bridges, NetworkLinks
from provision.hosts.resources.pci import IommuState, PciFunctions
from provision.inventory import Inventory, Subject
from provision.proxmox import names
from provision.proxmox.guide_lines import GUIDE_LINES
from provision.proxmox.host_facts import POOLS, RESERVATIONS, STORAGES, VM_DEVICES
from provision.proxmox.nic_facts import HOST_NICS
from provision.proxmox.preflight import (
    access,
    bridges,
    capacity,
    cards,
    claims,
    iommu,
    leftovers,
    moved,
    nics,
    reboot,
    storages,
    usb,
    vms,
)
from provision.proxmox.queries import Mappings, Permissions, UsbMappings, VmConfig, VmList
from provision.proxmox.reboot_facts import REBOOT_FACTS
from provision.proxmox.roles import hypervisor_host
from provision.proxmox.roles.pci_mapping import used
from provision.proxmox.usb_facts import USB_DEVICES

RULES: tuple[Rule, ...] = (
    *access.RULES,
    *vms.RULES,
    *moved.RULES,
    *capacity.RULES,
    *storages.RULES,
    *bridges.RULES,
    *cards.RULES,
    *claims.RULES,
    *nics.RULES,
    *usb.RULES,
    *iommu.RULES,
    *leftovers.RULES,
    *reboot.RULES,
)


def evidence(inventory: Inventory) -> dict[str, tuple[Any, ...]]:
    """Return the questions that these rules look at beyond those of roles, by system."""
    questions: dict[str, tuple[Any, ...]] = {}
    for hypervisor in inventory.hypervisors.values():
        nodes = names.nodes_of(inventory, hypervisor.name)
        host: list[Any] = []
        api: tuple[Any, ...] = ()
        if nodes:
            host += [MEMORY, PROCESSORS, STORAGES, Bridges(), NetworkLinks(), VM_DEVICES]
            host += [POOLS] if any(node.pool for node in nodes) else []
            own = tuple(VmConfig(node.vmid) for node in nodes if node.manage and node.vmid is not None)
            api = (Permissions(), VmList(), *own)
        if usb.is_asked(hypervisor, nodes):
            host.append(USB_DEVICES)
            api += (UsbMappings(),)
        if used(inventory, hypervisor.name):
            host += [HOST_NICS, REBOOT_FACTS] if names.taken_nics(inventory, hypervisor) else []
            host += [PciFunctions(), IommuState(), CMDLINE, RESERVATIONS, GUIDE_LINES, BootLoader()]
            api += (Mappings(),)
        if nodes or hypervisor.api.token is not None:
            api += moved.questions(inventory)
        if api:
            questions[names.api(hypervisor.name)] = api
        if hypervisor_host.declared(inventory, Subject("hypervisor", hypervisor.name)):
            host.append(REBOOT_FACTS)
        questions[host_names.ssh(hypervisor.name)] = tuple(host)
    return questions
