"""What a host uses its USB devices for, read by real shells from a folder that looks like sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.proxmox.usb_facts import USB_DEVICES, UsbPlugged, usb_devices
from tests.model.shells import SHELLS, run

POOL = (
    "tank\t9G\t1G\t8G\t-\t-\t0%\t1%\t1.00x\tONLINE\t-\n\t/dev/{disk}1\t9G\t1G\t8G\t-\t-\t0%\t1%\t-\tONLINE\n"
)


class Host:
    """A host with one USB disk, `sdb`."""

    def __init__(self, folder: Path, shell: str) -> None:
        self.folder, self.shell = folder, shell
        device = folder / "sys/bus/usb/devices/1-2"
        self.disk = device / "1-2:1.0/host6/target6:0:0/6:0:0:0/block/sdb"
        (self.disk / "sdb1/holders").mkdir(parents=True)
        for name, text in (("idVendor", "0781"), ("idProduct", "5581"), ("bDeviceClass", "00")):
            (device / name).write_text(f"{text}\n")
        (folder / "proc").mkdir()
        (folder / "bin").mkdir()
        self.write("mounts", "/dev/sda2 / ext4 rw 0 0")
        self.write("swaps", "Filename Type")

    def write(self, name: str, text: str) -> None:
        (self.folder / "proc" / name).write_text(f"{text}\n")

    def zfs(self, text: str, code: int = 0) -> None:
        (self.folder / "sys/module/zfs").mkdir(parents=True)
        (self.folder / "pools").write_text(text)
        tool = self.folder / "bin/zpool"
        tool.write_text(f"#!/bin/sh\ncat {self.folder}/pools\nexit {code}\n")
        tool.chmod(0o755)

    def devices(self) -> tuple[UsbPlugged, ...] | None:
        own = USB_DEVICES.command.replace("/sys/", f"{self.folder}/sys/")
        own = own.replace("/proc/", f"{self.folder}/proc/")
        frame = run(self.shell, f"PATH={self.folder}/bin:$PATH\nset +eu\n{own}")
        return usb_devices(frame.stdout.decode())


@pytest.fixture(params=SHELLS)
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    return Host(tmp_path, request.param)


def test_a_disk_that_nobody_uses_is_free(host: Host) -> None:
    host.zfs(POOL.format(disk="sda"))
    assert host.devices() == (UsbPlugged("1-2", "0781:5581"),)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ("mounts", "mounted disk sdb"),
        ("swaps", "mounted disk sdb"),
        ("holder", "disk sdb of dm-3"),
        ("zfs", "disk sdb of a ZFS pool"),
    ],
)
def test_a_disk_that_the_host_uses_is_in_use(host: Host, use: str, words: str) -> None:
    if use == "zfs":
        host.zfs(POOL.format(disk="sdb"))
    elif use == "holder":
        (host.disk / "sdb1/holders/dm-3").mkdir()
    else:
        host.write(use, "/dev/sdb1 /mnt x 0 0")
    assert host.devices() == (UsbPlugged("1-2", "0781:5581", (words,)),)


def test_pools_that_cannot_be_read_leave_the_devices_unknown(host: Host) -> None:
    host.zfs("", code=1)
    assert host.devices() is None
