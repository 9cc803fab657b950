"""In-memory guests and hypervisor that behave: running pids, driver links, groups, failures on demand."""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

from provision.lab.contracts import GuestError, GuestSpec, PciDevice

GIB = 1 << 30


def make_raw(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def make_qcow2(path: Path, virtual: int, length: int = 65536) -> None:
    """Write a qcow2 header; nothing reads more than the virtual size of it."""
    header = struct.pack(">4sIQIIQ", b"QFI\xfb", 3, 0, 0, 16, virtual)
    path.write_bytes(header + bytes(length - len(header)))


def virtual(path: Path) -> int:
    head = path.read_bytes()[:32] if path.stat().st_size < GIB else b""
    return int.from_bytes(head[24:32], "big") if head[:4] == b"QFI\xfb" else path.stat().st_size


@dataclass
class FakeGuests:
    """Guests that are entries of a dictionary."""

    running: dict[int, int] = field(default_factory=dict)
    started: list[GuestSpec] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)
    deaf: set[int] = field(default_factory=set)
    start_error: str | None = None
    import_gate: threading.Event | None = None
    next_pid: int = 5000

    def import_disk(self, source: Path, target: Path, size: float) -> None:
        assert size * GIB >= virtual(source)
        make_raw(target, int(size * GIB))
        if self.import_gate is not None:
            self.import_gate.wait(10)

    def create_disk(self, target: Path, size: float) -> None:
        make_raw(target, int(size * GIB))

    def grow_disk(self, disk: Path, size: float) -> None:
        assert size * GIB >= disk.stat().st_size
        make_raw(disk, int(size * GIB))

    def create_efivars(self, target: Path) -> None:
        make_raw(target, 528 * 1024)

    def start(self, spec: GuestSpec) -> None:
        if self.start_error is not None:
            raise GuestError(self.start_error)
        assert spec.vmid not in self.running
        assert all(disk.exists() for disk in spec.disks)
        self.started.append(spec)
        self.running[spec.vmid] = self.next_pid
        self.next_pid += 1

    def pid(self, vmid: int) -> int | None:
        return self.running.get(vmid)

    def stop(self, vmid: int) -> None:
        self.running.pop(vmid, None)

    def shutdown(self, vmid: int, timeout: float) -> bool:
        assert timeout >= 0
        if vmid in self.deaf:
            return False
        self.running.pop(vmid, None)
        return True

    def forget(self, vmid: int) -> None:
        assert vmid not in self.running
        self.forgotten.append(vmid)


def device(
    address: str, cls: str, ids: str, group: int, driver: str | None, subsystem: str = "1af4:1100"
) -> PciDevice:
    vendor, _, product = ids.partition(":")
    sub_vendor, _, sub_device = subsystem.partition(":")
    return PciDevice(address, cls, vendor, product, sub_vendor, sub_device, group, driver, boot_vga=False)


# Two display cards: 01:00 alone in its group, 02:00 beside a network card and below a bridge.
LAB_DEVICES = (
    device("0000:00:00.0", "060000", "8086:29c0", 0, None),
    device("0000:00:1c.0", "060400", "1b36:000c", 8, "pcieport"),
    device("0000:01:00.0", "038000", "1234:1111", 7, "bochs-drm"),
    device("0000:02:00.0", "038000", "1234:1111", 8, "bochs-drm"),
    device("0000:02:00.1", "020000", "1af4:1041", 8, "virtio-pci"),
)


@dataclass
class FakeHypervisor:
    """A hypervisor VM with a PCI table whose driver links really change."""

    devices: dict[str, PciDevice] = field(
        default_factory=lambda: {each.address: each for each in LAB_DEVICES}
    )
    snippets: dict[str, str] = field(default_factory=dict)
    bound: list[tuple[str, ...]] = field(default_factory=list)
    reboots: int = 0
    cpus: int = 4
    memory: int = 4 << 30
    boot_mode: str = "efi"
    away: bool = False

    def _reach(self) -> None:
        if self.away:
            raise GuestError("no route to host")

    def pci_devices(self) -> tuple[PciDevice, ...]:
        self._reach()
        return tuple(self.devices.values())

    def bind_vfio(self, addresses: tuple[str, ...]) -> None:
        self._reach()
        self.bound.append(addresses)
        for address in addresses:
            self.devices[address] = replace(self.devices[address], driver="vfio-pci")

    def read_snippet(self, name: str) -> str | None:
        self._reach()
        return self.snippets.get(name)

    def reboot(self) -> None:
        self.reboots += 1
        natural = {each.address: each.driver for each in LAB_DEVICES}
        for address, each in self.devices.items():
            self.devices[address] = replace(each, driver=natural.get(address))

    def facts(self) -> dict[str, object]:
        self._reach()
        return {
            "cpus": self.cpus,
            "memory": self.memory,
            "kernel": "6.1.0-lab",
            "cmdline": "quiet",
            "boot_mode": self.boot_mode,
            "boot_id": str(self.reboots),
        }
