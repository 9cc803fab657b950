"""Names of the API, volumes, mappings, snippets and drivers, as roles and checks share them."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from urllib.parse import quote, urlsplit

from provision.inventory import Inventory, Subject
from provision.inventory.models.hypervisor import Card, Hypervisor, UsbDevice
from provision.inventory.models.node import Node
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError

BLACKLIST = "cards"
"""Part of the name of our file in /etc/modprobe.d."""

SHARED_DRIVERS = frozenset(
    {
        "ahci",
        "ehci_pci",
        "nvme",
        "pcieport",
        "shpchp",
        "snd_hda_intel",
        "vfio_pci",
        "xhci_hcd",
        "xhci_pci",
    }
)
"""Drivers that the host's own devices need, too."""


def api(hypervisor: str) -> str:
    """Return the system of a hypervisor's web API."""
    return f"{hypervisor}/api"


def mapping(inventory: Inventory, card: str) -> str:
    """Return the id of a card's PCI mapping; PVE allows letters, digits, `-` and `_`."""
    return mapping_prefix(inventory) + re.sub(r"[^A-Za-z0-9_-]", "-", card)


def usb_mappings(inventory: Inventory, hypervisor: Hypervisor) -> dict[str, UsbDevice]:
    """Return the USB devices that VMs of a hypervisor take by mappings, by the ids of these."""
    nodes = nodes_of(inventory, hypervisor.name)
    aliases = dict.fromkeys(alias for node in nodes for alias in node.usb if alias in hypervisor.usb)
    devices = {alias: hypervisor.usb[alias] for alias in aliases}
    return {mapping(inventory, alias): device for alias, device in devices.items() if not device.raw}


def mappings(inventory: Inventory, hypervisor: Hypervisor, alias: str) -> dict[str, tuple[str, ...]]:
    """Return the ids of the PCI mappings of a card or pool with their paths.

    A pool has one mapping with a path for each of its cards, of which a start takes the first free one. A
    card has one, or one for each function that is passed; none if it is passed raw.

    PVE compares the ids of each device of a list with one id, so unlike functions need a mapping each
    (pve-guest-common, `PVE/Mapping/PCI.pm`, assert_valid).
    """
    whole = mapping(inventory, alias)
    if alias in hypervisor.card_pools:
        return {whole: tuple(hypervisor.cards[card].address for card in hypervisor.cards_of(alias))}
    declared = hypervisor.cards[alias]
    if declared.raw:
        return {}
    if not declared.functions:
        return {whole: (declared.address,)}
    # An alias has no underscore, so no other card's mapping is called like this.
    return {
        f"{whole}_f{number}": (f"{declared.address}.{number}",) for number in sorted(set(declared.functions))
    }


def path(declared: Card) -> str:
    """Return the addresses that a card is passed by, joined by semicolons as Proxmox VE takes them."""
    numbers = sorted(set(declared.functions))
    return ";".join(f"{declared.address}.{number}" for number in numbers) or declared.address


def mapping_prefix(inventory: Inventory) -> str:
    """Return how the ids of this inventory's mappings begin."""
    return f"provision-{re.sub(r'[^A-Za-z0-9_-]', '-', inventory.name)}-"


def image_download(inventory: Inventory, image: str) -> tuple[str, str]:
    """Return URL and SHA-256 of an image, from the inventory or from its lock file.

    Raises:
        UsageError: one of them is missing.
    """
    pin = inventory.image_pin(image)
    if pin is None:
        raise UsageError(
            Diagnostic(
                "IMAGE_UNPINNED",
                f"image {image} has no URL or no SHA-256: what is downloaded must be pinned",
                source=inventory.source(("images", image)),
                remedy=f"pin it: `provision pin {inventory.file or 'INVENTORY'}`",
            )
        )
    sources = inventory.sources
    if sources.mode == "mirror" and sources.mirror:
        name = quote(file_of_url(pin.url), safe="")
        return f"{sources.mirror.rstrip('/')}/images/{pin.sha256.lower()}/{name}", pin.sha256.lower()
    return pin.url, pin.sha256.lower()


def file_of_url(url: str) -> str:
    """Return the name of a file as a bundle and a mirror have it."""
    return PurePosixPath(urlsplit(url).path).name


def image_file(inventory: Inventory, image: str) -> str:
    """Return the file name of an image in its storage.

    Digits of its digest are always in it: the API tells no digest of a volume, so only another name shows
    that another image is wanted.
    """
    digest = image_download(inventory, image)[1][:8]
    name = re.sub(r"[^A-Za-z0-9._-]", "-", image)
    declared = inventory.images[image]
    name_of_file = PurePosixPath(declared.file or f"{name}.{'iso' if declared.is_iso else 'qcow2'}")
    if digest in name_of_file.name.lower():
        return name_of_file.name
    return f"{name_of_file.name.removesuffix(name_of_file.suffix)}-{digest}{name_of_file.suffix}"


def image_volume(inventory: Inventory, hypervisor: Hypervisor, image: str) -> str:
    """Return the volume of an image on a hypervisor."""
    content = image_content(inventory, image)
    return f"{hypervisor.storage.images}:{content}/{image_file(inventory, image)}"


def image_content(inventory: Inventory, image: str) -> str:
    """Return the content type of an image in its storage."""
    return "iso" if inventory.images[image].is_iso else "import"


def snippet_file(inventory: Inventory, node: str) -> str:
    """Return the file name of the vendor snippet with the first host key."""
    return f"provision-{inventory.name}-{node}.yaml"


def snippet_volume(inventory: Inventory, hypervisor: Hypervisor, node: Node) -> str:
    """Return the volume of the vendor snippet."""
    return f"{hypervisor.storage.snippets}:snippets/{snippet_file(inventory, node.name)}"


def vmid(inventory: Inventory, node: Node) -> int:
    """Return a VM's number.

    Raises:
        UsageError: it has none.
    """
    if node.vmid is None:
        raise UsageError(
            Diagnostic(
                "VMID_MISSING",
                f"{node.name} is a VM and has no vmid",
                node.name,
                source=inventory.source(("nodes", node.name)),
                remedy="Give it a number from 100 on that nothing else uses.",
            )
        )
    return node.vmid


def taken_nics(inventory: Inventory, hypervisor: Hypervisor) -> tuple[str, ...]:
    """Return the aliases of the cards that VMs of a hypervisor take besides GPUs, each once."""
    nodes = (node for node in nodes_of(inventory, hypervisor.name) if node.manage)
    aliases = dict.fromkeys(alias for node in nodes for alias in node.pci)
    return tuple(card for alias in aliases for card in hypervisor.cards_of(alias))


def nodes_of(inventory: Inventory, hypervisor: str) -> tuple[Node, ...]:
    """Return the VMs of a hypervisor, in the inventory's order."""
    return inventory.derived(_nodes_by_hypervisor).get(hypervisor, ())


def _nodes_by_hypervisor(inventory: Inventory) -> dict[str, tuple[Node, ...]]:
    nodes: dict[str, list[Node]] = {}
    for node in inventory.nodes.values():
        nodes.setdefault(node.hypervisor or "", []).append(node)
    return {hypervisor: tuple(theirs) for hypervisor, theirs in nodes.items()}


def orphan_owners(inventory: Inventory) -> tuple[Subject, ...]:
    """Return the hypervisors that may hold marked things: those whose API the inventory can open."""
    return tuple(
        Subject("hypervisor", each.name)
        for each in inventory.hypervisors.values()
        if each.api.token is not None
    )
