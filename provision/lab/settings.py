"""The settings of a lab and the paths of its files."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

GUEST_USER = "debian"
IMAGE = "debian-12"
API_PORT = 8006
IMAGE_PORT = 8080
BRIDGE = "vmbr0"
RANGE = ipaddress.ip_network("198.18.0.0/16")
# Names become parts of network namespaces, machine names and folders.
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?")


class LabError(Exception):
    """An operation of the lab failed.

    Args:
        text: the reason; further lines have evidence.
        remedy: what to do next, with `INVENTORY` in place of the lab's inventory; may be empty.
    """

    def __init__(self, text: str, remedy: str = "") -> None:
        super().__init__(text)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Card:
    """One display card of the hypervisor; `shares_group` puts another device into its IOMMU group."""

    name: str
    shares_group: bool = False


OVERLAY = "site.yaml"
"""Addresses, fingerprints and keys of a lab, as an inventory has them."""


@dataclass(frozen=True, slots=True)
class LabSettings:
    """One lab, as the inventory describes it.

    Args:
        name: the inventory's name; namespace and folder have it too.
        driver: `qemu` (virtual machines) or `container` (systemd-nspawn).
        cidr: the site's network.
        gateway: the router's address.
        hypervisors: name -> address; exactly one.
        hypervisor_memory_mib: memory of the hypervisor VM in MiB.
        cards: the display cards of the hypervisor.
        images: the images to build and serve: `debian-12`, `debian-12-lvm`.
    """

    name: str
    driver: Literal["qemu", "container"]
    hypervisors: Mapping[str, str]
    cidr: str = "198.18.0.0/24"
    gateway: str = "198.18.0.1"
    hypervisor_memory_mib: int = 1536
    cards: tuple[Card, ...] = ()
    images: tuple[str, ...] = field(default=(IMAGE,))

    def __post_init__(self) -> None:
        """Validate the settings.

        Raises:
            LabError: a setting is invalid; the text names the first one.
        """
        if not _NAME.fullmatch(self.name):
            raise LabError(
                f"invalid lab name {self.name!r}: use lower-case letters, digits and dashes, at most 24"
            )
        network = ipaddress.ip_network(self.cidr)
        if not (isinstance(network, ipaddress.IPv4Network) and network.subnet_of(_range())):
            raise LabError(f"lab network {self.cidr} must be inside {RANGE}, the range reserved for tests")
        if network.prefixlen > MAX_PREFIX:
            raise LabError(f"lab network {self.cidr} is too small: use /{MAX_PREFIX} or larger")
        if len(self.hypervisors) != 1:
            raise LabError("a lab has exactly one hypervisor")
        for address in (self.gateway, *self.hypervisors.values()):
            if ipaddress.ip_address(address) not in network:
                raise LabError(f"{address} is not in the lab's network {self.cidr}")
        if self.host_address in {self.gateway, *self.hypervisors.values()}:
            raise LabError(f"{self.host_address} is the lab's own address")
        for name in (*self.hypervisors, *(card.name for card in self.cards)):
            if not _NAME.fullmatch(name):
                raise LabError(
                    f"invalid name {name!r}: use lower-case letters, digits and dashes, at most 24"
                )

    @property
    def network(self) -> ipaddress.IPv4Network:
        """The site's network."""
        return ipaddress.IPv4Network(self.cidr)

    @property
    def host_address(self) -> str:
        """The last usable address: controller, API daemon and image server in the lab's namespace."""
        return str(self.network.broadcast_address - 1)

    @property
    def hypervisor(self) -> tuple[str, str]:
        """Name and address of the hypervisor."""
        return next(iter(self.hypervisors.items()))

    @property
    def dhcp_range(self) -> tuple[str, str]:
        """First and last address of the DHCP range (.100 to .199 of a /24)."""
        size = self.network.num_addresses
        return str(self.network[size * 100 // 256]), str(self.network[size * 199 // 256])

    @property
    def folder(self) -> Path:
        """The lab's folder."""
        return lab_folder(self.name)

    @property
    def overlay(self) -> Path:
        """The inventory overlay; `up` writes it last."""
        return self.folder / OVERLAY


MAX_PREFIX = 26


def _range() -> ipaddress.IPv4Network:
    assert isinstance(RANGE, ipaddress.IPv4Network)  # noqa: S101 - narrows the type of a constant
    return RANGE


LABS = Path("/var/lib/provision-lab")


def labs_root() -> Path:
    """Return the folder of all labs (`PROVISION_LAB_DIR`), resolved because processes are marked with it."""
    return Path(os.environ.get("PROVISION_LAB_DIR") or LABS).resolve()


def cache_root() -> Path:
    """Return the folder of images (`PROVISION_CACHE`)."""
    return Path(os.environ.get("PROVISION_CACHE") or "/var/cache/provision").absolute()


def lab_folder(name: str) -> Path:
    """Return the folder of one lab.

    Raises:
        LabError: the name is invalid, so it could leave the folder of labs.
    """
    if not _NAME.fullmatch(name):
        raise LabError(f"invalid lab name {name!r}: use lower-case letters, digits and dashes, at most 24")
    return labs_root() / name


def machine_wide(folder: Path) -> str:
    """Return a name of the lab that is unique on this machine, for namespaces and control groups.

    Outside the default folder, a hash of the folder distinguishes labs of the same name.
    """
    if folder.parent == LABS.resolve():
        return f"provision-{folder.name}"
    place = hashlib.sha256(os.fsencode(folder.parent)).hexdigest()[:8]
    return f"provision-{folder.name}@{place}"


def namespace(folder: Path, guest: str | None = None) -> str:
    """Return the network namespace of a lab or of one of its containers."""
    return machine_wide(folder) if guest is None else f"{machine_wide(folder)}.{guest}"
