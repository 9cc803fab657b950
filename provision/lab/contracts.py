"""Protocols of the guests and the hypervisor VM, as the lab's API uses them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Nic:
    """One network device of a guest (`model` is virtio or e1000)."""

    mac: str
    bridge: str
    model: str = "virtio"


@dataclass(frozen=True, slots=True)
class CloudInit:
    """Content of the cloud-init drive (NoCloud). `vendor` is the text of a vendor snippet or None.

    `ipconfig` has one PVE property string for every NIC, in order (`ip=dhcp`).
    """

    hostname: str
    user: str
    ssh_keys: str
    instance_id: str
    vendor: str | None
    ipconfig: tuple[str, ...] = ("ip=dhcp",)


@dataclass(frozen=True, slots=True)
class GuestSpec:
    """A guest to start, as read from a VM's configuration.

    Args:
        vmid: VM number, unique in the lab.
        name: VM name.
        cores: virtual processors.
        memory: MiB.
        machine: `pc` or `q35`.
        firmware: `seabios` or `ovmf`.
        disks: image files in order of their bus position; the first is booted.
        efivars: the file with OVMF variables, or None.
        nics: network devices in order.
        cloud_init: the seed, or None for a VM without such a drive.
        cards: how many emulated display cards the guest gets in place of passed-through ones.
        balloon: whether it has a balloon device.
    """

    vmid: int
    name: str
    cores: int
    memory: int
    machine: str
    firmware: str
    disks: tuple[Path, ...]
    efivars: Path | None
    nics: tuple[Nic, ...]
    cloud_init: CloudInit | None
    cards: int = 0
    balloon: bool = True


class GuestError(Exception):
    """A guest could not be started or stopped; the text becomes the task's exit status."""


class Guests(Protocol):
    """Runs guests with `qemu` or as containers. Guests outlive the process that started them."""

    def import_disk(self, source: Path, target: Path, size: float) -> None:
        """Create `target` (size in GiB, at least the source's) from the image `source`."""

    def create_disk(self, target: Path, size: float) -> None:
        """Create an empty disk of `size` GiB."""

    def grow_disk(self, disk: Path, size: float) -> None:
        """Grow a disk to `size` GiB."""

    def create_efivars(self, target: Path) -> None:
        """Create the file of OVMF variables without enrolled keys."""

    def start(self, spec: GuestSpec) -> None:
        """Start a guest; return as soon as its process runs. Raises GuestError."""

    def pid(self, vmid: int) -> int | None:
        """Return the process id of a running guest."""

    def stop(self, vmid: int) -> None:
        """Kill a guest; no error if it is off."""

    def shutdown(self, vmid: int, timeout: float) -> bool:
        """Ask for a clean shutdown; False if the guest still runs after `timeout` seconds."""

    def forget(self, vmid: int) -> None:
        """Remove seed, logs and sockets of a guest that is off; the caller removes the disks."""


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One PCI function from the hypervisor's sysfs (ids are four hex digits, the class has six)."""

    address: str
    cls: str
    vendor: str
    device: str
    subsystem_vendor: str
    subsystem_device: str
    iommu_group: int
    driver: str | None
    boot_vga: bool


class Hypervisor(Protocol):
    """The hypervisor VM (or its container), reached over SSH by the lab itself."""

    def pci_devices(self) -> tuple[PciDevice, ...]:
        """Read the PCI functions from sysfs."""

    def bind_vfio(self, addresses: tuple[str, ...]) -> None:
        """Bind functions to vfio-pci as Proxmox does (new_id, unbind, bind). Raises GuestError."""

    def read_snippet(self, name: str) -> str | None:
        """Return the text of /var/lib/vz/snippets/<name>, or None."""

    def reboot(self) -> None:
        """Reboot the hypervisor VM cleanly."""

    def facts(self) -> dict[str, object]:
        """Return `cpus` (int), `memory` (bytes), `kernel`, `cmdline`, `boot_mode` (efi, legacy-bios).

        Also `boot_id`, which shows that a reboot is complete.
        """
