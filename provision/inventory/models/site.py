"""What holds for the whole site: policy, access, proxy, sources, network, images, lab."""

from typing import Literal

from pydantic import Field

from provision.inventory.grammar import ImageFile, ImageName, Jump, Line, Login, Url
from provision.inventory.models.base import Model, SecretRef, Ssh
from provision.inventory.scalars import (
    Address,
    AddressRange,
    CertificateFingerprint,
    Flag,
    HostName,
    LocalPath,
    Mebibytes,
    Network4,
    Port,
    Sha256,
    TargetPath,
    Text,
    Word,
)
from provision.inventory.vocabulary import Order
from provision.values.consent import Consent


class Policy(Model):
    """Consent by effect class; docs/consent.md says what holds for unlisted ones."""

    allow: tuple[Word, ...] = ()
    """Effect classes that need no consent."""
    ask: tuple[Word, ...] = ()
    """Effect classes that need an answer at the prompt, or `--allow CLASS`."""
    never: tuple[Word, ...] = ()
    """Effect classes that are never done."""

    def consent(self, effect_class: str) -> Consent | None:
        """Return what the policy says about an effect class, None if nothing; the strictest list wins."""
        if effect_class in self.never:
            return Consent.NEVER
        if effect_class in self.ask:
            return Consent.ASK
        return Consent.ALLOW if effect_class in self.allow else None


class Access(Model):
    """How guests and nodes are reached by SSH."""

    user: Login | None = None
    """Login of guests; cloud-init creates it."""
    key: LocalPath | None = None
    """Private key file. The public key beside it (`.pub`) goes into new VMs."""
    jump: Jump | None = None
    """Jump host, as for `ssh -J`."""
    known_hosts: LocalPath | None = None
    """File with known host keys; if unset, your own."""
    port: Port | None = None
    """TCP port of sshd on all nodes."""
    authorized_keys: tuple[Line, ...] | None = None
    """All public keys of the login on guests. If unset, they are not managed."""


class Proxy(Model):
    """HTTP proxy of nodes and pods; the controller's own API calls never use it."""

    url: Url | None = None
    """Proxy for http and https."""
    no_proxy: tuple[Line, ...] = ()
    """More exceptions. Nodes, pods and services are always exceptions."""


ReleaseName = Literal["debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04"]


class RegistryLogin(Model):
    """A login of a container registry."""

    user: Text
    """Name of the login (`$oauthtoken` of nvcr.io)."""
    password: SecretRef
    """Its password or token, by reference."""


class Sources(Model):
    """Where images, binaries, charts and packages come from."""

    mode: Literal["online", "mirror", "bundle"] = "online"
    """From the original places, from a mirror, or from a bundle on the controller."""
    mirror: Url | None = None
    """Base URL of the mirror."""
    bundle: LocalPath | None = None
    """Folder or archive of the bundle."""
    registries: dict[Text, Url] = Field(default_factory=dict)
    """Container registry mirrors by registry (`docker.io: https://...`)."""
    logins: dict[Text, RegistryLogin] = Field(default_factory=dict)
    """Logins by registry (`nvcr.io`) or mirror (`mirror.lab.example:5000`), for nodes, `bundle` and `pin`."""
    images: tuple[ImageName, ...] = ()
    """Container images that a bundle has besides those that charts and `verify.images` name."""
    apt: Url | None = None
    """Mirror of the distribution's package archive; Debian's security archive beside it (`-security`)."""
    apt_key: LocalPath | None = None
    """File with the public key that signs that mirror, if it is not the distribution's own."""
    apt_more: tuple[Line, ...] = ()
    """More package archives beside the mirror, as lines of sources.list(5): of drivers and toolkits."""
    releases: tuple[ReleaseName, ...] = ()
    """Releases of nodes whose image's name does not say it, for the packages of a bundle (`debian-12`)."""


class DhcpApi(Model):
    """Web API of a router."""

    url: Url
    """Base URL."""
    token: SecretRef
    """API token or password, by reference."""
    user: Text | None = None
    """Login (unifi, routeros), key (opnsense) or token id (proxmox_sdn), if the token does not name it."""
    fingerprint: CertificateFingerprint | None = None
    """SHA-256 fingerprint of its certificate; if unset, the system's authorities are used."""


class Dhcp(Model):
    """The DHCP server, and how reservations get there."""

    backend: Word
    """Kind of DHCP server. `manual` prints what a person has to enter."""
    address: Address | None = None
    """The router's address, if it is not the gateway."""
    ssh: Ssh | None = None
    """How the router is reached by SSH."""
    api: DhcpApi | None = None
    """How the router's web API is reached."""
    file: TargetPath | None = None
    """On the router: the folder for reservations (dnsmasq), or the control socket (kea)."""
    server: Line | None = None
    """Name of the site (unifi), of the VNet (proxmox_sdn), or of one of several DHCP servers (routeros)."""
    range: AddressRange | None = None
    """Addresses that the server gives out freely (`first-last`)."""
    in_range: Flag = False
    """Whether reserved addresses may be inside the range."""
    order: Order = "reserve_first"
    """Reserve before the first boot, or after it (for routers that list only clients they saw)."""


class Network(Model):
    """The site's network."""

    cidr: Network4
    """The network of nodes and hypervisors."""
    gateway: Address | None = None
    """Default router."""
    dns: tuple[Address, ...] = ()
    """Name servers, if they are not the gateway."""
    domain: HostName | None = None
    """DNS domain of the site."""
    dhcp: Dhcp | None = None
    """The DHCP server."""


class Image(Model):
    """A cloud image, or an installation medium (`.iso`)."""

    url: Url | None = None
    """Where it is downloaded from."""
    sha256: Sha256 | None = None
    """Its digest, checked at download; if unset, that of provision.lock.yaml (`provision pin INVENTORY`)."""
    file: ImageFile | None = None
    """File name in the storage, otherwise `NAME.qcow2` or `NAME.iso`. 8 digits of the digest are added."""

    @property
    def is_iso(self) -> bool:
        """Whether it is an installation medium: by its file name, else by its URL."""
        return (self.file or (self.url or "").partition("?")[0]).lower().endswith(".iso")


class LabCard(Model):
    """One emulated display card of the lab's hypervisor VM."""

    name: Word
    """Name in output of `provision lab status`."""
    shares_group: Flag = False
    """Whether another device shares its IOMMU group."""


class LabHypervisor(Model):
    """The lab's hypervisor VM."""

    memory: Mebibytes = 2048
    """Memory of the hypervisor VM."""
    cards: tuple[LabCard, ...] = ()
    """Its display cards, in order of their PCI slots."""


class Lab(Model):
    """A rehearsal site on this machine. The lab provides its endpoints and keys."""

    driver: Literal["qemu", "container"] = "qemu"
    """How guests run: as virtual machines, or as containers that start in seconds."""
    hypervisor: LabHypervisor = Field(default_factory=LabHypervisor.model_construct)
    """The hypervisor VM."""
