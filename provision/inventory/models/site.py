"""What holds for the whole site: policy, access, proxy, sources, network, images, lab."""

from typing import Literal

from pydantic import Field

from provision.inventory.models.base import Model, SecretRef, Ssh
from provision.inventory.scalars import (
    Address,
    AddressRange,
    CertificateFingerprint,
    Flag,
    LocalPath,
    Mebibytes,
    Network4,
    Port,
    Sha256,
    TargetPath,
    Text,
    Url,
    Word,
)
from provision.inventory.vocabulary import Order
from provision.values.consent import Consent


class Policy(Model):
    """Consent by effect class; unlisted ones ask, save daemon-reload, initramfs, boot-loader, restart."""

    allow: tuple[Word, ...] = ()
    """Effect classes that are never asked for."""
    ask: tuple[Word, ...] = ()
    """Effect classes that need a prompt's answer or `--allow CLASS`."""
    never: tuple[Word, ...] = ()
    """Effect classes that are refused, whatever is answered."""

    def consent(self, effect_class: str) -> Consent | None:
        """Return what the policy says about an effect class, None if nothing; the strictest list wins."""
        if effect_class in self.never:
            return Consent.NEVER
        if effect_class in self.ask:
            return Consent.ASK
        return Consent.ALLOW if effect_class in self.allow else None


class Access(Model):
    """How guests and nodes are reached by SSH."""

    user: Word | None = None
    """Guest login."""
    key: LocalPath | None = None
    """Private key file on the controller; the public key beside it (`.pub`) goes into cloud-init."""
    jump: Word | None = None
    """Jump host, as for `ssh -J`."""
    known_hosts: LocalPath | None = None
    """File with known host keys; without it, the user's own."""
    port: Port | None = None
    """TCP port of sshd on all nodes."""
    authorized_keys: tuple[Text, ...] | None = None
    """Managed list of public keys on guests; unset, unmanaged."""


class Proxy(Model):
    """HTTP proxy of nodes and pods; the controller's own API calls never use it."""

    url: Url | None = None
    """Proxy for http and https."""
    no_proxy: tuple[Text, ...] = ()
    """Further exceptions; nodes, pods and services are added by themselves."""


class Sources(Model):
    """Where images, binaries, charts and packages come from."""

    mode: Literal["online", "mirror", "bundle"] = "online"
    """From upstream, from a mirror, or from a bundle on the controller."""
    mirror: Url | None = None
    """Base URL of the mirror."""
    bundle: LocalPath | None = None
    """Folder or archive of the bundle."""
    registries: dict[Text, Url] = Field(default_factory=dict)
    """Container registry mirrors by registry (`docker.io: https://...`)."""
    apt: Url | None = None
    """Mirror of the distribution's package archive."""


class DhcpApi(Model):
    """Web API of a router."""

    url: Url
    """Base URL."""
    token: SecretRef
    """API token or password, by reference."""
    user: Text | None = None
    """Login or key name, where the token alone does not name it."""
    fingerprint: CertificateFingerprint | None = None
    """SHA-256 fingerprint of its certificate; unset, the system's authorities count."""


class Dhcp(Model):
    """Who hands out addresses, and how reservations get there."""

    backend: Word
    """What the router speaks; `manual` prints a table for a person to type."""
    address: Address | None = None
    """The router's address, where it is not the gateway."""
    ssh: Ssh | None = None
    """How the router is reached by SSH."""
    api: DhcpApi | None = None
    """How the router's web API is reached."""
    file: TargetPath | None = None
    """File on the router that holds our reservations (dnsmasq, kea)."""
    server: Word | None = None
    """Name of the DHCP server or interface on the router (opnsense, pfsense, unifi)."""
    range: AddressRange | None = None
    """Addresses that are handed out freely (`first-last`)."""
    in_range: Flag = False
    """Reserved addresses may lie inside the range."""
    order: Order = "reserve_first"
    """Reserve before the first boot, or after it (for routers that list only clients they saw)."""


class Network(Model):
    """The site's network."""

    cidr: Network4
    """The network that nodes and hypervisors live in."""
    gateway: Address | None = None
    """Default router."""
    dns: tuple[Address, ...] = ()
    """Name servers, where they are not the gateway."""
    domain: Text | None = None
    """DNS domain of the site."""
    dhcp: Dhcp | None = None
    """Who hands out addresses."""


class Image(Model):
    """A cloud image."""

    url: Url | None = None
    """Where it is downloaded from."""
    sha256: Sha256 | None = None
    """Its digest, checked at download; unset, that of the lock file (`provision pin INVENTORY`)."""
    file: Word | None = None
    """File name in the image storage, else `NAME.qcow2`; 8 digits of its digest are added if not in it."""


class LabCard(Model):
    """One emulated display card of the lab's hypervisor VM."""

    name: Word
    """Name in output of `provision lab status`."""
    shares_group: Flag = False
    """Another device shares its IOMMU group."""


class LabHypervisor(Model):
    """The lab's hypervisor VM."""

    memory: Mebibytes = 2048
    """Memory of the hypervisor VM."""
    cards: tuple[LabCard, ...] = ()
    """Its display cards, in order of their PCI slots."""


class Lab(Model):
    """A stand-in site on this machine; its endpoints and keys come from an overlay that the lab writes."""

    driver: Literal["qemu", "container"] = "qemu"
    """How guests run: true machines, or containers in seconds."""
    hypervisor: LabHypervisor = Field(default_factory=LabHypervisor.model_construct)
    """The hypervisor VM."""
