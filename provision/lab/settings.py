"""What a lab is made of and where its files are."""

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
    """The lab cannot do what was asked.

    Args:
        text: why, with what was seen in further lines.
        remedy: what to do next, in words that call the lab's inventory `INVENTORY`; may be empty.
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
        name: the inventory's name; also names the namespace and the folder.
        driver: `qemu` (virtual machines) or `container` (systemd-nspawn, stands in for machines).
        cidr: the site's network.
        gateway: the router's address.
        hypervisors: name -> address; exactly one.
        hypervisor_memory_mib: memory of the hypervisor VM in MiB.
        cards: the display cards of the hypervisor.
        images: which images to make and serve: `debian-12`, `debian-12-lvm`.
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
        """Refuse what no lab can be.

        Raises:
            LabError: with the first problem found.
        """
        if not _NAME.fullmatch(self.name):
            raise LabError(f"lab name {self.name!r}: lower-case letters, digits and dashes, at most 24")
        network = ipaddress.ip_network(self.cidr)
        if not (isinstance(network, ipaddress.IPv4Network) and network.subnet_of(_range())):
            raise LabError(f"lab network {self.cidr} must lie inside {RANGE}, the range set aside for tests")
        if network.prefixlen > MAX_PREFIX:
            raise LabError(f"lab network {self.cidr} is too small: /{MAX_PREFIX} or larger")
        if len(self.hypervisors) != 1:
            raise LabError("a lab has exactly one hypervisor")
        for address in (self.gateway, *self.hypervisors.values()):
            if ipaddress.ip_address(address) not in network:
                raise LabError(f"{address} is not in the lab's network {self.cidr}")
        if self.host_address in {self.gateway, *self.hypervisors.values()}:
            raise LabError(f"{self.host_address} is the lab's own address")
        for name in (*self.hypervisors, *(card.name for card in self.cards)):
            if not _NAME.fullmatch(name):
                raise LabError(f"name {name!r}: lower-case letters, digits and dashes, at most 24")

    @property
    def network(self) -> ipaddress.IPv4Network:
        """The site's network."""
        return ipaddress.IPv4Network(self.cidr)

    @property
    def host_address(self) -> str:
        """The address of the namespace itself: controller, API daemon and image server (last usable)."""
        return str(self.network.broadcast_address - 1)

    @property
    def hypervisor(self) -> tuple[str, str]:
        """Name and address of the hypervisor."""
        return next(iter(self.hypervisors.items()))

    @property
    def dhcp_range(self) -> tuple[str, str]:
        """First and last address that DHCP gives out (.100 to .199 of a /24)."""
        size = self.network.num_addresses
        return str(self.network[size * 100 // 256]), str(self.network[size * 199 // 256])

    @property
    def folder(self) -> Path:
        """The lab's folder."""
        return lab_folder(self.name)

    @property
    def overlay(self) -> Path:
        """The file that lies over the inventory; the last thing that a lab which comes up writes."""
        return self.folder / OVERLAY


MAX_PREFIX = 26


def _range() -> ipaddress.IPv4Network:
    assert isinstance(RANGE, ipaddress.IPv4Network)  # noqa: S101 - narrows the type of a constant
    return RANGE


LABS = Path("/var/lib/provision-lab")


def labs_root() -> Path:
    """Return the folder of all labs (`PROVISION_LAB_DIR`), without links: it tells whose a process is."""
    return Path(os.environ.get("PROVISION_LAB_DIR") or LABS).resolve()


def cache_root() -> Path:
    """Return the folder of images (`PROVISION_CACHE`)."""
    return Path(os.environ.get("PROVISION_CACHE") or "/var/cache/provision").absolute()


def lab_folder(name: str) -> Path:
    """Return the folder of one lab.

    Raises:
        LabError: the name could leave the folder of labs.
    """
    if not _NAME.fullmatch(name):
        raise LabError(f"lab name {name!r}: lower-case letters, digits and dashes, at most 24")
    return labs_root() / name


def machine_wide(folder: Path) -> str:
    """Return what a lab is called where all labs of this machine meet: namespaces and control groups.

    Labs of one name in different folders are told apart; in the usual folder the name is enough.
    """
    if folder.parent == LABS.resolve():
        return f"provision-{folder.name}"
    place = hashlib.sha256(os.fsencode(folder.parent)).hexdigest()[:8]
    return f"provision-{folder.name}@{place}"


def namespace(folder: Path, guest: str | None = None) -> str:
    """Return the network namespace of a lab or of one of its containers."""
    return machine_wide(folder) if guest is None else f"{machine_wide(folder)}.{guest}"
