"""Nodes and hypervisors: names, references, VM numbers, cards, what only VMs have."""

from __future__ import annotations

from provision.inventory.models.inventory import Inventory
from provision.inventory.models.node import Node, NodeSettings
from provision.inventory.rules import card_pools
from provision.inventory.rules.findings import Findings
from provision.inventory.tree import KeyPath

_VM_ONLY = (
    *(
        "vmid",
        "vm_name",
        "image",
        "iso",
        "cores",
        "sockets",
        "memory",
        "disk",
        "disks",
        "efi",
        "tpm",
        "cpu",
        "numa",
        "machine",
    ),
    *(
        "bios",
        "balloon",
        "agent",
        "serial_console",
        "pool",
        "tags",
        "protection",
        "startup",
        "power",
        "start_at_boot",
        "gpus",
        "pci",
        "usb",
    ),
)
_RESERVED = ("cluster", "router", "controller")
_GIB = 1024


def check(inventory: Inventory, findings: Findings) -> None:
    """Find problems of machines."""
    places = _Seen()
    _hypervisors(inventory, places, findings)
    for name, profile in inventory.profiles.items():
        _references(profile, ("profiles", name), findings)
    for name, node in inventory.nodes.items():
        path: KeyPath = ("nodes", name)
        _unique(node, path, places, findings)
        if node.profile is not None:
            findings.reference("profile", node.profile, ("profiles",), (*path, "profile"))
        _references(node, path, findings)
        _driver(node, path, findings)
        if node.is_virtual:
            _virtual(node, path, inventory, findings)
        elif not findings.written((*path, "hypervisor")):
            _bare_metal(node, path, findings)


class _Seen:
    """Where each unique value stood first, by kind."""

    def __init__(self) -> None:
        self.names: dict[str, KeyPath] = {}
        self.hosts: dict[str, KeyPath] = {}
        self.kube: dict[str, KeyPath] = {}
        self.vmids: dict[str, KeyPath] = {}
        self.vms: dict[str, KeyPath] = {}
        self.macs: dict[str, KeyPath] = {}
        self.given: dict[str, KeyPath] = {}
        self.plugged: dict[str, KeyPath] = {}


def _hypervisors(inventory: Inventory, places: _Seen, findings: Findings) -> None:
    for name, hypervisor in inventory.hypervisors.items():
        path: KeyPath = ("hypervisors", name)
        _name(name, path, places.names, findings)
        findings.unique("the node name", hypervisor.node_name, (*path, "node"), places.hosts)
        if hypervisor.mac is not None:
            findings.unique("the MAC address", hypervisor.mac, (*path, "mac"), places.macs)
        slots: dict[str, KeyPath] = {}
        for alias, card in hypervisor.cards.items():
            place: KeyPath = (*path, "cards", alias, "address")
            numbers = sorted(set(card.functions)) or range(8)
            functions = [f"{card.address}.{number}" for number in numbers]
            taken = next((function for function in functions if function in slots), "")
            whole = card.address if not card.functions else taken
            findings.unique("the card's PCI address", whole, place, {whole: slots[taken]} if taken else {})
            slots |= {function: place for function in functions if function not in slots}
        card_pools.check(inventory, hypervisor, places.given, findings)
        for kind, devices in (("cards", hypervisor.cards), ("usb", hypervisor.usb)):
            for alias, device in devices.items():
                if device.raw and hypervisor.api.root_password is None:
                    what = f"`api` of {name}, which passes {alias} as root,"
                    findings.lacks(what, "root_password", (*path, kind, alias, "raw"))


def _unique(node: Node, path: KeyPath, places: _Seen, findings: Findings) -> None:
    _name(node.name, path, places.names, findings)
    if node.managed_hostname is not None:
        findings.unique("the host name", node.managed_hostname, (*path, "hostname"), places.hosts)
    if node.k3s is not None:
        findings.unique("the Kubernetes name", node.kubernetes_name, (*path, "kube_name"), places.kube)
    if node.vmid is not None:
        findings.unique("the VMID", str(node.vmid), (*path, "vmid"), places.vmids)
    if node.vm_name is not None and node.managed_vm_name is not None:
        findings.unique("the VM's name", node.managed_vm_name, (*path, "vm_name"), places.vms)
    for index, nic in enumerate(node.nics):
        if nic.mac is not None:
            findings.unique("the MAC address", nic.mac, (*path, "nics", index, "mac"), places.macs)
    for index, alias in enumerate(node.usb):
        whose = f"{alias} of {node.hypervisor}"
        findings.unique("the USB device", whose, (*path, "usb", index), places.plugged)
    pools: dict[str, KeyPath] = {}  # several VMs may take from one
    for key, aliases in (("gpus", node.gpus), ("pci", node.pci)):
        for index, alias in enumerate(aliases):
            is_pool = findings.written(("hypervisors", node.hypervisor or "", "card_pools", alias))
            whose = f"{alias} of {node.hypervisor}"
            findings.unique("the card", whose, (*path, key, index), pools if is_pool else places.given)


def _name(name: str, path: KeyPath, names: dict[str, KeyPath], findings: Findings) -> None:
    findings.unique("the name", name, path, names)
    if name in _RESERVED:
        findings.add(
            "INVENTORY_DUPLICATE", f"the name {name} is reserved for provision itself", path, on_key=True
        )


def _references(settings: NodeSettings, path: KeyPath, findings: Findings) -> None:
    if settings.image is not None:
        findings.reference("image", settings.image, ("images",), (*path, "image"))
    if settings.iso is not None:
        findings.reference("image", settings.iso, ("images",), (*path, "iso"))
    host = settings.hypervisor
    if host is not None and findings.reference("hypervisor", host, ("hypervisors",), (*path, "hypervisor")):
        section = ("hypervisors", host, "cards")
        for key, aliases in (("gpus", settings.gpus), ("pci", settings.pci)):
            for index, alias in enumerate(aliases):
                if not findings.written(("hypervisors", host, "card_pools", alias)):
                    findings.reference(f"card of {host}", alias, section, (*path, key, index))
        for index, alias in enumerate(settings.usb):
            devices = ("hypervisors", host, "usb")
            findings.reference(f"USB device of {host}", alias, devices, (*path, "usb", index))
    _whole_gib(settings.disk, (*path, "disk"), findings)
    for index, disk in enumerate(settings.disks):
        _whole_gib(disk.size, (*path, "disks", index, "size"), findings)


def _whole_gib(size: int | None, path: KeyPath, findings: Findings) -> None:
    if size is not None and size % _GIB:
        summary = f"a disk has a whole number of GiB: did you mean {size // _GIB + 1}GiB?"
        findings.add("INVENTORY_VALUE", summary, path)


def _driver(node: Node, path: KeyPath, findings: Findings) -> None:
    driver = node.driver
    if driver is not None and driver.manage and driver.origin is None:
        remedy = "declare whose packages are installed, or `manage: false` for a driver that is there"
        findings.lacks(f"the GPU driver of {node.name}", "origin", (*path, "driver"), remedy=remedy)


def _bare_metal(node: Node, path: KeyPath, findings: Findings) -> None:
    for key in (*_VM_ONLY, "nics"):
        # Every node has a network device by default: what counts is whether one was written.
        if getattr(node, key) not in (None, ()) and (key != "nics" or findings.written((*path, key))):
            summary = f"{node.name} has no hypervisor, so it cannot have {key!r}"
            findings.conflict(summary, (*path, key), remedy="declare its hypervisor, or remove the key")


def _virtual(node: Node, path: KeyPath, inventory: Inventory, findings: Findings) -> None:
    if node.connection == "local":
        summary = f"the VM {node.name} cannot have `connection: local`"
        findings.conflict(summary, (*path, "connection"), remedy="remove the key")
    if node.vmid is None and not findings.written((*path, "vmid")):
        remedy = "write a number that is free in Proxmox VE: `vmid: 110`"
        findings.lacks(f"the VM {node.name}", "vmid", path, remedy=remedy)
    if not node.nics:
        findings.add("INVENTORY_VALUE", f"the VM {node.name} needs a network device", (*path, "nics"))
    _slots(node, path, findings)
    _medium(node, path, inventory, findings)
    if not node.cards:
        return
    if node.machine_type == "i440fx":
        findings.conflict("passing a card to a VM needs machine q35", (*path, "machine"))
    if node.balloon:
        summary = "a VM with a passed-through card cannot have a balloon: its memory is pinned"
        findings.conflict(summary, (*path, "balloon"))


def _slots(node: Node, path: KeyPath, findings: Findings) -> None:
    """Refuse places of disks that are taken, or that the machine does not have."""
    taken: dict[str, KeyPath] = {}
    for index, disk in enumerate(node.disks):
        place: KeyPath = (*path, "disks", index, "slot")
        if disk.slot is None:
            continue
        findings.unique("the slot", disk.slot, place, taken)
        if disk.slot == "scsi0" and (node.disk is not None or node.image is not None):
            findings.conflict(f"scsi0 of {node.name} is its first disk", place)
        if disk.slot == "ide2" and (node.image is not None or node.iso is not None):
            drive = "drive of cloud-init" if node.image is not None else "CD-ROM drive"
            findings.conflict(f"ide2 of {node.name} is the {drive}", place)
        if disk.slot.startswith("virtio") and disk.ssd is not None:
            summary = f"Proxmox VE has no option ssd for {disk.slot} of {node.name}"
            findings.conflict(summary, (*place[:-1], "ssd"), remedy="remove it, or use a slot of scsi")


def _medium(node: Node, path: KeyPath, inventory: Inventory, findings: Findings) -> None:
    """Refuse an installation medium as an image, and the other way round; and both at once."""
    for key, is_iso in (("image", False), ("iso", True)):
        image = inventory.images.get(getattr(node, key) or "")
        if image is not None and image.is_iso is not is_iso:
            what = "is an installation medium" if image.is_iso else "is not an installation medium (`.iso`)"
            other = "iso" if image.is_iso else "image"
            remedy = f"write `{other}: {getattr(node, key)}`"
            findings.conflict(f"{getattr(node, key)} of {node.name} {what}", (*path, key), remedy=remedy)
    if node.iso is not None and node.image is not None:
        findings.conflict(f"{node.name} cannot start from an image and from a medium", (*path, "iso"))
    if node.iso is not None and node.disk is None:
        remedy = "declare the size of its first disk: `disk: 32GiB`"
        findings.lacks(f"the VM {node.name} with an installation medium", "disk", path, remedy=remedy)
