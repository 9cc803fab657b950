"""Hypervisors: Proxmox VE hosts, their API, storages and cards."""

from typing import Literal

from pydantic import Field

from provision.inventory.grammar import Bridge, Module, TokenId, Url
from provision.inventory.grammar import Storage as StorageName
from provision.inventory.models.base import Model, SecretRef, Ssh
from provision.inventory.models.host_resources import HostResources
from provision.inventory.scalars import (
    Address,
    CertificateFingerprint,
    Flag,
    KernelArgument,
    Label,
    Mac,
    Mebibytes,
    PciAddress,
    PciFunctionNumber,
    PciId,
    PveName,
    Text,
    UsbId,
    UsbPort,
    Vars,
)


class Api(Model):
    """The hypervisor's web API; written by `provision bootstrap root@ADDRESS`."""

    url: Url | None = None
    """Base URL; if unset, `https://ADDRESS:8006`."""
    token_id: TokenId | None = None
    """API token's name: `user@realm!token`."""
    token: SecretRef | None = None
    """API token's secret, by reference."""
    fingerprint: CertificateFingerprint | None = None
    """SHA-256 fingerprint of its certificate."""
    root_password: SecretRef | None = None
    """Password of root@pam, by reference: for devices with `raw: true`, which no token may pass."""


class Storage(Model):
    """Names of Proxmox VE storages, by use."""

    images: StorageName = "local"
    """Storage for cloud images (content type import or iso)."""
    disks: StorageName = "local-lvm"
    """Storage for VM disks."""
    snippets: StorageName = "local"
    """Storage for cloud-init snippets."""


class Card(Model):
    """A PCI card that is passed to VMs by its alias."""

    address: PciAddress
    """PCI address with domain and without function, as `0000:02:00`."""
    functions: tuple[PciFunctionNumber, ...] = ()
    """Numbers of the functions that are passed, as `[0, 1]`, and the host keeps the others; if unset, all."""
    id: PciId | None = None
    """Vendor and device id of the first function, as `10de:2204`."""
    rom: Flag | None = None
    """Whether the guest sees the card's ROM; `false` for one whose boot program holds up the guest."""
    raw: Flag = False
    """Pass it by its address, as root@pam, instead of by a mapping; needs `api.root_password`."""
    drives_console: Flag = False
    """The host's monitor is connected to it, so passing it on needs the consent `console-loss`."""

    def passes(self, number: str) -> bool:
        """Whether the function with a number (one hex digit) is passed."""
        return not self.functions or int(number, 16) in self.functions


class UsbDevice(Model):
    """A USB device that is passed to a VM by its alias."""

    id: UsbId
    """Vendor and device id, as `0403:6001`."""
    port: UsbPort | None = None
    """Port that it is plugged into, as `1-2.4`; needed where two devices have one id."""
    raw: Flag = False
    """Pass it as root@pam instead of by a mapping; needs `api.root_password`."""


class Hypervisor(Model):
    """One Proxmox VE host."""

    name: Text = Field(default="", exclude=True)
    """Set by the loader: the key in `hypervisors`."""
    manage: Flag = True
    """Whether provision changes the host itself. Its VMs are managed in any case."""
    address: Address
    """Its address."""
    node: PveName | None = None
    """Node name in Proxmox VE, if it is not the key, as `SW-HCA-01`."""
    reserve_address: Flag = False
    """Whether its address is reserved on the router as well."""
    mac: Mac | None = None
    """MAC address of its bridge for the reservation; if unset, it is read from the host."""
    connection: Literal["ssh", "local"] = "ssh"
    """Over SSH, or `local` if provision runs on the host itself."""
    api: Api = Field(default_factory=Api.model_construct)
    """Its web API."""
    ssh: Ssh = Field(default_factory=Ssh.model_construct)
    """How it is reached by SSH. The user is root if none is given."""
    repositories: Literal["unmanaged", "no_subscription", "enterprise"] = "unmanaged"
    """Package repository of Proxmox VE on the host: one that needs no subscription, or one that does."""
    storage: Storage = Field(default_factory=Storage.model_construct)
    """Its storages, by use."""
    bridge: Bridge = "vmbr0"
    """Bridge for network devices of VMs."""
    reserve_memory: Mebibytes | None = None
    """Memory that the host and its ZFS cache keep for themselves."""
    cards: dict[Label, Card] = Field(default_factory=dict)
    """PCI cards by alias."""
    card_pools: dict[Label, tuple[Label, ...]] = Field(default_factory=dict)
    """Pools of equal cards by name: a VM with `gpus: [POOL]` takes one that is free when it starts."""
    usb: dict[Label, UsbDevice] = Field(default_factory=dict)
    """USB devices by alias."""
    blacklist_extra: tuple[Module, ...] = ()
    """More kernel modules that must not be loaded, besides those of the cards."""
    kernel_arguments: tuple[KernelArgument, ...] = ()
    """More kernel arguments of the host, one each; quote a value with blanks: `acpi_osi="!Windows 2015"`."""
    guide_lines: Literal["report", "comment_out"] = "report"
    """Lines of passthrough guides in `/etc/modules` and `modprobe.d` that do harm or nothing."""
    host_resources: HostResources = ()
    """What the host needs besides: files, packages, services and more."""
    vars: Vars = Field(default_factory=dict)
    """Values for templates of `host_resources`."""

    @property
    def node_name(self) -> str:
        """Node name in Proxmox VE."""
        return self.node or self.name

    @property
    def api_url(self) -> str:
        """Base URL of the web API, without a slash at the end."""
        return (self.api.url or f"https://{self.address}:8006").rstrip("/")

    def cards_of(self, alias: str) -> tuple[str, ...]:
        """Return the cards behind an alias of `gpus` or `pci`: those of a pool, one card, or none."""
        return self.card_pools.get(alias) or ((alias,) if alias in self.cards else ())
