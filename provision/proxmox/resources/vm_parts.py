"""The parts of a desired VM and their property strings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from provision.proxmox.formats import join

GIB = 1024
"""MiB in a GiB: PVE counts disks in whole GiB."""


@dataclass(frozen=True, slots=True)
class Drive:
    """A disk.

    Args:
        slot: `scsi0`, `scsi1`; of a VM that was adopted, any bus.
        storage: where it is made.
        size: MiB, a whole number of GiB.
        image: volume that it starts from (`local:import/debian.qcow2`), or empty.
        options: options given at creation.
        declared: options that stay managed (`ssd`, `discard`).
    """

    slot: str
    storage: str
    size: int
    image: str = ""
    options: tuple[tuple[str, str], ...] = ()
    declared: tuple[tuple[str, str], ...] = ()

    def new(self) -> str:
        """Return the property string that makes it; an import needs size 0 and is grown afterwards."""
        parts = {"": f"{self.storage}:{0 if self.image else self.size // GIB}"}
        if self.image:
            parts["import-from"] = self.image
        return join({**parts, **dict(self.options), **dict(self.declared)})


@dataclass(frozen=True, slots=True)
class Nic:
    """A network device; what is None is unmanaged."""

    mac: str
    bridge: str
    model: str = "virtio"
    vlan: int | None = None
    mtu: int | None = None
    firewall: bool | None = None

    def desired(self) -> dict[str, str]:
        """Return what is managed, by PVE's names."""
        parts = {"model": self.model, "macaddr": self.mac.upper(), "bridge": self.bridge}
        if self.vlan is not None:
            parts["tag"] = str(self.vlan)
        if self.mtu is not None:
            parts["mtu"] = str(self.mtu)
        if self.firewall is not None:
            parts["firewall"] = str(int(self.firewall))
        return parts

    @staticmethod
    def text(parts: Mapping[str, str]) -> str:
        """Return PVE's property string: the model carries the MAC."""
        rest = {key: value for key, value in parts.items() if key not in {"model", "macaddr"}}
        return join({parts["model"]: parts["macaddr"], **rest})


@dataclass(frozen=True, slots=True)
class Passed:
    """A card, or one function of it, that is passed to the VM.

    Args:
        mapping: id of the PCI mapping.
        functions: full addresses of the PCI functions that it stands for.
        rom: whether the guest sees its ROM; None leaves that alone.
        host: addresses, of what is passed without a mapping.
    """

    mapping: str
    functions: frozenset[str]
    rom: bool | None = None
    host: str = ""

    def text(self) -> str:
        """Return PVE's property string."""
        rom = "" if self.rom is None else f",rombar={int(self.rom)}"
        device = self.host or f"mapping={self.mapping}"
        return f"{device},pcie=1{rom}"

    def has_options(self, parts: Mapping[str, str]) -> bool:
        """Whether a parsed entry passes it as it should."""
        return parts.get("pcie") == "1" and (self.rom is None or parts.get("rombar") == str(int(self.rom)))


@dataclass(frozen=True, slots=True)
class Plugged:
    """A USB device that is passed to the VM: by a mapping, or as root by its id or port."""

    mapping: str = ""
    host: str = ""

    def text(self) -> str:
        """Return PVE's property string."""
        return f"mapping={self.mapping}" if self.mapping else f"host={self.host}"

    def is_in(self, parts: Mapping[str, str]) -> bool:
        """Whether a parsed entry passes it."""
        own = ("mapping", self.mapping) if self.mapping else ("host", self.host)
        return parts.get(own[0], "").lower() == own[1].lower()


@dataclass(frozen=True, slots=True)
class Efi:
    """The disk of OVMF's variables."""

    storage: str
    pre_enrolled_keys: bool = False

    def new(self) -> str:
        """Return the property string that makes it; PVE's own default would be the old 2m format."""
        return f"{self.storage}:1,efitype=4m,pre-enrolled-keys={int(self.pre_enrolled_keys)}"


@dataclass(frozen=True, slots=True)
class Tpm:
    """An emulated TPM; its version can never change."""

    storage: str
    version: str

    def new(self) -> str:
        """Return the property string that makes it."""
        return f"{self.storage}:1,version={self.version}"


@dataclass(frozen=True, slots=True)
class CloudInit:
    """What a guest gets at its creation; never compared afterwards.

    Args:
        storage: where the drive is made.
        user: login of the guest.
        keys: public keys, one a line.
        vendor: volume of the vendor snippet, or empty.
        network: `ipconfig0`.
        nameserver: name servers with spaces between them; empty for those of the hypervisor or of DHCP.
    """

    storage: str
    user: str
    keys: str = field(repr=False)
    vendor: str = ""
    network: str = "ip=dhcp"
    nameserver: str = ""
