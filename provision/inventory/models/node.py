"""Profiles and nodes: virtual machines and bare metal alike."""

from typing import Annotated, Any, Literal

from pydantic import Field

from provision.inventory.grammar import (
    Bridge,
    CpuFlag,
    CpuType,
    DiskSlot,
    Line,
    MachineType,
    ModuleName,
    Package,
    Pool,
    Server,
    Storage,
    SysctlKey,
    TimeZone,
)
from provision.inventory.models.base import Model, Ssh
from provision.inventory.models.host_resources import HostResources
from provision.inventory.scalars import (
    Address,
    Check,
    Count,
    Flag,
    HostName,
    Interface4,
    Label,
    Mac,
    Mebibytes,
    PveName,
    Seconds,
    Text,
    Vars,
    VmId,
    Whole,
    text,
    whole,
    wrong,
)
from provision.values.sizes import parse_size


def _balloon(value: Any) -> int:
    if value is False or value == 0 or str(value) in {"off", "false", "0"}:
        return 0
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return parse_size(text(value))
    except ValueError:
        wrong(f"{str(value)[:60]!r} is neither `off` nor a size like 2GiB")


Balloon = Annotated[int, Check(_balloon, {"type": "string", "examples": ["off", "2GiB"]})]


NicModel = Literal[
    "virtio",
    "e1000",
    "e1000-82540em",
    "e1000-82544gc",
    "e1000-82545em",
    "e1000e",
    "i82551",
    "i82557b",
    "i82559er",
    "ne2k_isa",
    "ne2k_pci",
    "pcnet",
    "rtl8139",
    "vmxnet3",
]
"""Network devices that Proxmox VE emulates (qemu-server, `PVE/QemuServer/Network.pm`)."""


class Nic(Model):
    """A network device of a VM."""

    bridge: Bridge | None = None
    """Bridge; if unset, the hypervisor's."""
    vlan: Annotated[int, Check(whole(1, 4094), {"type": "integer"})] | None = None
    """VLAN tag."""
    model: NicModel = "virtio"
    """Emulated device."""
    mac: Mac | None = None
    """MAC address; if unset, it is generated once and kept."""
    mtu: Annotated[int, Check(whole(576, 65520), {"type": "integer"})] | None = None
    """MTU."""
    firewall: Flag | None = None
    """Proxmox VE firewall on this device."""


class Disk(Model):
    """One more disk of a VM."""

    size: Mebibytes
    """Size, a whole number of GiB."""
    storage: Storage | None = None
    """Storage; if unset, the hypervisor's `storage.disks`."""
    slot: DiskSlot | None = None
    """Bus and number in Proxmox VE (`virtio1`, `sata0`, `ide1`); if unset, the next free one of scsi."""
    ssd: Flag | None = None
    """Show it to the guest as an SSD."""
    discard: Flag | None = None
    """Pass discards to the storage."""


class Efi(Model):
    """The disk of OVMF's variables."""

    storage: Storage | None = None
    """Storage; if unset, the hypervisor's `storage.disks`."""
    pre_enrolled_keys: Flag = False
    """Secure Boot keys; with them, unsigned kernel modules do not load."""


class Tpm(Model):
    """An emulated TPM."""

    storage: Storage | None = None
    """Storage; if unset, the hypervisor's `storage.disks`."""
    version: Literal["v1.2", "v2.0"] = "v2.0"
    """TPM version; it cannot be changed later."""


class Cpu(Model):
    """CPU model of a VM."""

    type: CpuType | None = None
    """Proxmox VE CPU type (`host`, `x86-64-v2-AES`)."""
    flags: tuple[CpuFlag, ...] = ()
    """Flags switched on or off (`+aes`, `-pcid`)."""


class Startup(Model):
    """Order and delays at the hypervisor's boot."""

    order: Whole | None = None
    """Position in the order."""
    up: Seconds | None = None
    """Seconds to wait before the next start."""
    down: Seconds | None = None
    """Seconds to wait for the shutdown."""


class GpuCards(Model):
    """The GPUs that a node must have."""

    count: Count | None = None
    """Number of cards."""
    name: Text | None = None
    """Name, as nvidia-smi prints it."""
    memory: Mebibytes | None = None
    """Memory of one card."""
    nvswitch: Flag | None = None
    """Whether NVSwitch joins them."""
    ecc: Flag | None = None
    """Whether ECC is on."""
    mig: Flag | None = None
    """Whether MIG is on."""


class Driver(Model):
    """GPU driver; keys merge: node over profile over `gpu.driver`."""

    manage: Flag = True
    """Whether provision installs it."""
    minimum: Text | None = None
    """Lowest version that is accepted, if it is not managed."""
    origin: Literal["ubuntu", "debian", "nvidia"] | None = None
    """Whose packages are installed."""
    branch: Text | None = None
    """Driver branch (`580-server`)."""
    version: Text | None = None
    """A version, or `newest-in-branch`."""
    hold: Flag | None = None
    """Whether upgrades of its packages are held back."""
    kind: Literal["open", "proprietary"] | None = None
    """Kernel modules."""
    fabric_manager: Text | None = None
    """`same-version`, `unmanaged`, or a version."""
    persistence: Flag | None = None
    """Whether the persistence daemon runs; if unset, it does with a managed driver."""
    power_limit: Count | None = None
    """Power limit of each card in watts, now and after each boot."""
    nvlink: Flag | None = None
    """`false` keeps NVLink off, for an SXM card in a VM without its NVSwitch; `true`: you run the fabric."""


class Ofed(Model):
    """NIC driver stack."""

    manage: Flag = False
    """Whether provision installs it."""
    minimum: Text | None = None
    """Lowest version that is accepted, if it is not managed."""
    version: Text | None = None
    """Version that is installed."""


class ContainerRuntime(Model):
    """A container runtime that came with the node."""

    manage: Flag = False
    """Whether provision manages it."""
    minimum: Text | None = None
    """Lowest version that is accepted."""


class Interfaces(Model):
    """Network interfaces by use."""

    node: Text | None = None
    """Interface with the node's address (for flannel and node-ip)."""


class Rail(Model):
    """One RoCE or InfiniBand port. It is checked and never configured."""

    device: Text | None = None
    """Network interface."""
    hca: Text | None = None
    """RDMA device."""
    port: Annotated[int, Check(whole(1, 255), {"type": "integer"})] = 1
    """Port of the RDMA device."""
    mtu: Annotated[int, Check(whole(576, 65520), {"type": "integer"})] | None = None
    """MTU of the interface."""


class NodeSettings(Model):
    """What a profile gives to its nodes, and a node may change. What is unset is unmanaged."""

    manage: Flag = True
    """Whether provision changes the node at all."""
    hypervisor: Text | None = None
    """Its hypervisor; if unset, the node is bare metal."""
    image: Text | None = None
    """Cloud image of its first disk; used only when the VM is created."""
    iso: Text | None = None
    """Installation medium in `images`, in the CD-ROM drive of a new VM; a person installs the guest."""
    cores: Count | None = None
    """Virtual processors per socket."""
    sockets: Count | None = None
    """Sockets."""
    memory: Mebibytes | None = None
    """Memory."""
    disk: Mebibytes | None = None
    """Size of the first disk, a whole number of GiB. It can only grow."""
    disks: tuple[Disk, ...] = ()
    """More disks."""
    nics: tuple[Nic, ...] = Field(default_factory=lambda: (Nic.model_construct(),))
    """Network devices; the first one has the node's address."""
    efi: Efi | None = None
    """Disk of OVMF's variables."""
    tpm: Tpm | None = None
    """Emulated TPM."""
    cpu: Cpu | None = None
    """CPU model."""
    numa: Flag | None = None
    """NUMA emulation."""
    machine: MachineType | None = None
    """Machine type: `i440fx`, `q35`, or one with its version (`pc-q35-10.1`), which updates then keep."""
    bios: Literal["seabios", "ovmf"] | None = None
    """Firmware."""
    balloon: Balloon | None = None
    """Least memory after ballooning, or `off`."""
    agent: Flag | None = None
    """QEMU guest agent."""
    serial_console: Flag | None = None
    """Serial port for `qm terminal`; if unset, a new VM has one, and it is left alone afterwards."""
    pool: Pool | None = None
    """Proxmox VE pool."""
    tags: tuple[Label, ...] = ()
    """More Proxmox VE tags."""
    protection: Flag | None = None
    """Whether Proxmox VE refuses to remove the VM and its disks."""
    startup: Startup | None = None
    """Order and delays at the hypervisor's boot."""
    power: Literal["running", "stopped", "unmanaged"] | None = None
    """Power state. `unmanaged` (also if unset): started once, then left to you."""
    start_at_boot: Flag | None = None
    """Whether it starts with the hypervisor."""
    gpus: tuple[Text, ...] = ()
    """Cards of the hypervisor that are passed to it, by alias."""
    pci: tuple[Text, ...] = ()
    """Other cards of the hypervisor that are passed to it, by alias: network cards or functions of them."""
    usb: tuple[Text, ...] = ()
    """USB devices of the hypervisor that are passed to it, by alias."""
    gpu_cards: GpuCards | None = None
    """The GPUs that it must have."""
    hostname: HostName | None = None
    """Host name, or `unmanaged`. If unset, a VM has its key, and bare metal is left alone."""
    timezone: TimeZone | None = None
    """Time zone (`Etc/UTC`)."""
    ntp: tuple[Server, ...] | None = None
    """Time servers."""
    swap: Literal["off", "unmanaged"] | None = None
    """Whether swap is switched off, now and at boot."""
    grow_root: Flag | None = None
    """Whether the root filesystem fills the disk; if unset, on VMs with an image."""
    packages: tuple[Package, ...] = ()
    """Distribution packages that are installed."""
    sysctl: dict[SysctlKey, Line] = Field(default_factory=dict)
    """Kernel parameters, now and at boot."""
    modules: tuple[ModuleName, ...] = ()
    """Kernel modules that are loaded, now and at boot."""
    hosts: dict[HostName, Address] = Field(default_factory=dict)
    """Addresses by name in /etc/hosts."""
    unattended_upgrades: Literal["off", "keep_kernel", "unmanaged"] | None = None
    """Whether unattended upgrades are switched off, or leave kernels and drivers of GPUs alone."""
    connection: Literal["ssh", "local"] = "ssh"
    """Over SSH, or `local` if provision runs on the node itself; not for VMs."""
    ssh: Ssh = Field(default_factory=Ssh.model_construct)
    """How it is reached by SSH, if that differs from `access:`."""
    interfaces: Interfaces | None = None
    """Network interfaces by use."""
    rails: dict[Label, Rail] = Field(default_factory=dict)
    """RoCE or InfiniBand ports by rail."""
    k3s: Literal["server", "agent"] | None = None
    """Its part in the cluster."""
    labels: dict[Text, Text] = Field(default_factory=dict)
    """Kubernetes labels."""
    annotations: dict[Text, Text] = Field(default_factory=dict)
    """Kubernetes annotations."""
    taints: tuple[Text, ...] = ()
    """Kubernetes taints (`key=value:NoSchedule`)."""
    driver: Driver | None = None
    """GPU driver."""
    ofed: Ofed | None = None
    """NIC driver stack."""
    container_runtime: ContainerRuntime | None = None
    """Container runtime that came with the node."""
    host_resources: HostResources = ()
    """What the node needs besides: files, packages, services and more."""
    vars: Vars = Field(default_factory=dict)
    """Values for templates of `host_resources`."""


class Profile(NodeSettings):
    """Settings that nodes share."""


class Node(NodeSettings):
    """One machine: a VM if it has a hypervisor, otherwise bare metal. `gpu-[01-16]` declares a range."""

    name: Text = Field(default="", exclude=True)
    """Set by the loader: the key in `nodes`."""
    profile: Text | None = None
    """Profile with its settings."""
    vmid: VmId | None = None
    """VMID in Proxmox VE; the nodes of a range count up from it."""
    vm_name: PveName | None = None
    """Name of the VM in Proxmox VE, if it is not the key. `unmanaged` leaves it as it is."""
    address: Address
    """Its address; a range of nodes has a range of addresses (`first-last`)."""
    kube_name: HostName | None = None
    """Node name in Kubernetes, if it is not the host name."""
    rail_addresses: dict[Label, Interface4] = Field(default_factory=dict)
    """Address with prefix, by rail. It is checked and never configured."""

    @property
    def is_virtual(self) -> bool:
        """Whether it is a VM of a hypervisor of this inventory."""
        return self.hypervisor is not None

    @property
    def wants_gpu(self) -> bool:
        """Whether it passes cards through, or must show some."""
        return bool(self.gpus) or self.gpu_cards is not None

    @property
    def cards(self) -> tuple[str, ...]:
        """Aliases of all cards that are passed to it."""
        return (*self.gpus, *self.pci)

    @property
    def managed_vm_name(self) -> str | None:
        """Name of the VM in Proxmox VE; None leaves that of an existing VM alone."""
        return None if self.vm_name == "unmanaged" else self.vm_name or self.name

    @property
    def machine_type(self) -> Literal["i440fx", "q35"] | None:
        """Family of the machine type, declared or implied; None is unmanaged."""
        if self.machine is None:
            return "q35" if self.cards else None
        return "q35" if "q35" in self.machine else "i440fx"

    @property
    def machine_version(self) -> str | None:
        """The machine type with its version, if one is declared."""
        return self.machine if self.machine is not None and self.machine.startswith("pc-") else None

    @property
    def firmware(self) -> Literal["seabios", "ovmf"] | None:
        """Firmware, declared or implied; None is unmanaged."""
        return self.bios or ("ovmf" if self.gpus or self.efi is not None else None)

    @property
    def efi_disk(self) -> Efi | None:
        """The disk of OVMF's variables, declared or implied by the firmware."""
        return self.efi or (Efi() if self.firmware == "ovmf" else None)

    @property
    def cpu_type(self) -> str | None:
        """CPU type, declared or implied; None is unmanaged."""
        declared = self.cpu.type if self.cpu is not None else None
        return declared or ("host" if self.gpus else None)

    @property
    def cpu_flags(self) -> tuple[str, ...]:
        """CPU flags."""
        return self.cpu.flags if self.cpu is not None else ()

    @property
    def balloon_memory(self) -> int | None:
        """Least memory in MiB after ballooning; 0 is off, None is unmanaged."""
        return 0 if self.cards else self.balloon

    @property
    def starts_at_boot(self) -> bool | None:
        """Whether it starts with the hypervisor; None is unmanaged."""
        return self.start_at_boot if self.start_at_boot is not None else (False if self.gpus else None)

    @property
    def power_state(self) -> Literal["running", "stopped", "unmanaged"]:
        """Power state, declared or unmanaged."""
        return self.power or "unmanaged"

    @property
    def managed_hostname(self) -> str | None:
        """The host name to set, or None when it is left alone."""
        if self.hostname is not None:
            return None if self.hostname == "unmanaged" else self.hostname
        return self.name if self.is_virtual else None

    @property
    def grows_root(self) -> bool:
        """Whether the root filesystem is grown to the whole disk."""
        return self.grow_root if self.grow_root is not None else (self.is_virtual and self.image is not None)

    @property
    def kubernetes_name(self) -> str:
        """Node name in Kubernetes."""
        return self.kube_name or self.managed_hostname or self.name
