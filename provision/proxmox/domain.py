"""Proxmox VE, as the composition root sees it."""

from __future__ import annotations

from provision.contracts.domain import Domain
from provision.contracts.support import Untested
from provision.inventory import Inventory
from provision.proxmox.vm_effects import EFFECTS


def _passes_nics(inventory: Inventory) -> bool:
    return any(node.pci for node in inventory.nodes.values())


def _passes_usb(inventory: Inventory) -> bool:
    return any(node.usb for node in inventory.nodes.values())


DOMAIN = Domain(
    "proxmox",
    concerns=lambda inventory: bool(inventory.hypervisors),
    effects=EFFECTS,
    systems="provision.proxmox.systems:systems",
    drivers={"proxmox": "provision.proxmox.systems:open_api"},
    parents="provision.proxmox.systems:parents",
    roles={
        "hypervisor_host": "provision.proxmox.roles.hypervisor_host:ROLE",
        "image": "provision.proxmox.roles.image:ROLE",
        "pci_mapping": "provision.proxmox.roles.pci_mapping:ROLE",
        "virtual_machine": "provision.proxmox.roles.virtual_machine:ROLE",
        "first_contact": "provision.proxmox.roles.first_contact:ROLE",
    },
    destroy_keeps=frozenset({"hypervisor_host", "image"}),
    rules="provision.proxmox.preflight.rules:RULES",
    evidence="provision.proxmox.preflight.rules:evidence",
    doctor="provision.proxmox.doctor:RULES",
    checks=("provision.proxmox.checks",),
    untested=(
        Untested("network cards passed to VMs", ("nodes",), _passes_nics),
        Untested("USB devices passed to VMs", ("nodes",), _passes_usb),
    ),
)
