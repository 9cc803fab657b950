"""Guests as QEMU virtual machines, and `Machine`, which they share with the hypervisor VM."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from provision.lab import netns, processes, qmp, record, seed
from provision.lab.contracts import GuestError, GuestSpec
from provision.lab.recipe import run
from provision.lab.settings import LabError, namespace

FIRMWARE = Path("/usr/share/OVMF/OVMF_CODE_4M.fd")
VARIABLES = Path("/usr/share/OVMF/OVMF_VARS_4M.fd")
_MIB = 1024
"""MiB in a GiB: disks have whole MiB."""
_CORES = 2
_MEMORY = 2048
_PRESS_AGAIN = 15.0


def guest_cores(cores: int) -> int:
    """Return how many processors a guest gets: at most two, and at most as many as the machine has."""
    return max(1, min(cores, os.cpu_count() or 1, _CORES))


def guest_memory(memory: int) -> int:
    """Return a guest's memory in MiB, capped by `PROVISION_LAB_GUEST_MEMORY` (default 2048)."""
    cap = os.environ.get("PROVISION_LAB_GUEST_MEMORY", "")
    return min(memory, int(cap) if cap.isdigit() else _MEMORY)


def guest_command(spec: GuestSpec, accelerator: tuple[str, ...], taps: tuple[str, ...]) -> list[str]:
    """Return the part of QEMU's command line that depends on a guest's configuration.

    Args:
        spec: the guest.
        accelerator: arguments from `accel.choose`.
        taps: tap devices, one for every NIC.
    """
    machine = "q35,smm=off" if spec.machine == "q35" else "pc,smm=off"
    argv = [
        "-machine", machine, *accelerator,
        "-smp", str(guest_cores(spec.cores)), "-m", str(guest_memory(spec.memory)),
        "-device", "virtio-rng-pci", "-device", "virtio-scsi-pci,id=scsihw0",
    ]  # fmt: skip
    if spec.firmware == "ovmf":
        if spec.efivars is None:
            raise GuestError("OVMF needs a disk for its variables")
        argv += [
            "-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={FIRMWARE}",
            "-drive", f"if=pflash,unit=1,format=raw,file={_quoted(spec.efivars)}",
        ]  # fmt: skip
    for index, disk in enumerate(spec.disks):
        argv += [
            "-drive",
            f"file={_quoted(disk)},if=none,id=disk{index},format={disk_format(disk)},cache=unsafe,discard=unmap",
            "-device", f"scsi-hd,bus=scsihw0.0,scsi-id={index},drive=disk{index},bootindex={100 + index}",
        ]  # fmt: skip
    if spec.cloud_init is not None:
        argv += [
            "-drive", "file=seed.iso,if=none,id=seed,format=raw,readonly=on,media=cdrom",
            "-device", "ide-cd,bus=ide.1,drive=seed",
        ]  # fmt: skip
    for index, (nic, tap) in enumerate(zip(spec.nics, taps, strict=True)):
        model = "e1000" if nic.model == "e1000" else "virtio-net-pci"
        argv += [
            "-netdev", f"tap,id=net{index},ifname={tap},script=no,downscript=no",
            "-device", f"{model},netdev=net{index},mac={nic.mac.lower()},romfile=",
        ]  # fmt: skip
    if spec.balloon:
        argv += ["-device", "virtio-balloon-pci"]
    for index in range(spec.cards):
        if spec.machine == "q35":
            argv += [
                "-device", f"pcie-root-port,id=card{index},chassis={10 + index},slot={10 + index}",
                "-device", f"secondary-vga,bus=card{index}",
            ]  # fmt: skip
        else:
            argv += ["-device", "secondary-vga"]
    return argv


def disk_format(disk: Path) -> str:
    """Return `qcow2` or `raw`, from the file's first bytes."""
    try:
        with disk.open("rb") as file:
            return "qcow2" if file.read(4) == b"QFI\xfb" else "raw"
    except OSError as error:
        raise GuestError(f"disk {disk.name}: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class Machine:
    """One QEMU process of a lab: a guest or the hypervisor VM.

    Args:
        lab: the lab's folder.
        key: its short name inside the lab (`hypervisor`, a VMID).
        name: name of the console log.
    """

    lab: Path
    key: str
    name: str

    @property
    def folder(self) -> Path:
        """The machine's own folder."""
        return self.lab / "guests" / self.key

    @property
    def console(self) -> Path:
        """The log of its serial console."""
        return self.lab / "console" / f"{self.name}.log"

    def pid(self) -> int | None:
        """Return its process, or None."""
        return processes.read_pid(self.folder / "pid")

    def start(self, argv: list[str], *, paused: bool) -> None:
        """Start QEMU in the lab's namespace; return as soon as it runs.

        Raises:
            GuestError: QEMU failed; the text has its output.
        """
        self.console.parent.mkdir(exist_ok=True)
        for stale in ("pid", "qmp"):
            (self.folder / stale).unlink(missing_ok=True)
        with self.console.open("a") as log:
            log.write(f"\n--- start of {self.name}\n")
        command = [
            "qemu-system-x86_64", "-name", self.name, "-nodefaults", "-display", "none", "-vga", "none",
            "-chardev", f"file,id=console,path={_quoted(self.console)},append=on",
            "-serial", "chardev:console", "-qmp", "unix:qmp,server=on,wait=off",
            "-pidfile", "pid", "-daemonize", *(("-S",) if paused else ()), *argv,
        ]  # fmt: skip
        space = namespace(self.lab)
        completed = subprocess.run(
            netns.inside(space, command),
            cwd=self.folder,
            env=processes.environment(self.lab),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if completed.returncode != 0:
            raise GuestError(f"QEMU: {(completed.stderr or completed.stdout).strip()[-500:]}")

    def stop(self) -> None:
        """Kill the machine."""
        pid = self.pid()
        if pid is not None:
            processes.end({pid}, grace=0)
        netns.remove_ports(self.lab, self.key)

    def shutdown(self, timeout: float) -> bool:
        """Press the power button; False if the machine still runs after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        pressed = 0.0
        while self.pid() is not None:
            # A guest that is still booting ignores the button, so it is pressed again.
            if time.monotonic() - pressed > _PRESS_AGAIN:
                pressed = time.monotonic()
                with contextlib.suppress(GuestError):
                    qmp.command(self.folder, "system_powerdown")
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        self.stop()
        return True


class QemuGuests:
    """Implements `Guests` with QEMU.

    Args:
        lab: the lab's folder.
        accelerator: arguments from `accel.choose`.
    """

    def __init__(self, lab: Path, accelerator: tuple[str, ...]) -> None:
        self._lab = lab
        self._accelerator = accelerator

    def import_disk(self, source: Path, target: Path, size: float) -> None:
        """Create a disk of `size` GiB with an image as its backing file.

        A real import copies the image. Here the backing file is a hard link to it, which costs nothing and
        stays when the image is removed.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            source_stat = source.stat()
            base = self._lab / "base" / f"{source_stat.st_ino}-{source_stat.st_mtime_ns}.img"
            base.parent.mkdir(exist_ok=True)
            if not base.exists():
                base.hardlink_to(source)
        except OSError as error:
            raise GuestError(f"image {source.name}: {error.strerror}") from error
        over = ["-b", str(base), "-F", disk_format(base)]
        self._image(["qemu-img", "create", "-q", "-f", "qcow2", *over, str(target), f"{int(size * _MIB)}M"])

    def create_disk(self, target: Path, size: float) -> None:
        """Create an empty qcow2 file of `size` GiB."""
        target.parent.mkdir(parents=True, exist_ok=True)
        self._image(["qemu-img", "create", "-q", "-f", "qcow2", str(target), f"{int(size * _MIB)}M"])

    def grow_disk(self, disk: Path, size: float) -> None:
        """Grow a disk that no running guest uses to `size` GiB."""
        self._image(["qemu-img", "resize", "-q", "-f", disk_format(disk), str(disk), f"{int(size * _MIB)}M"])

    def create_efivars(self, target: Path) -> None:
        """Copy OVMF's empty variables (no keys enrolled)."""
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(VARIABLES, target)

    def start(self, spec: GuestSpec) -> None:
        """Start a guest, paused until one of the two boot slots is free. Raises GuestError."""
        machine = self._machine(spec.vmid, spec.name)
        if machine.pid() is not None:
            raise GuestError(f"VM {spec.vmid} already running")
        machine.folder.mkdir(parents=True, exist_ok=True)
        record.note_name(self._lab, spec.vmid, spec.name)
        if spec.cloud_init is not None:
            self._write_seed(machine, spec)
        taps = tuple(netns.add_tap(self._lab, machine.key, index) for index in range(len(spec.nics)))
        machine.start(guest_command(spec, self._accelerator, taps), paused=True)
        subprocess.Popen(
            [sys.executable, "-m", "provision.lab.bootslot", str(self._lab), machine.key, machine.name],
            env=processes.environment(self._lab),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def pid(self, vmid: int) -> int | None:
        """Return a guest's QEMU process."""
        return self._known(vmid).pid()

    def stop(self, vmid: int) -> None:
        """Kill a guest."""
        self._known(vmid).stop()

    def shutdown(self, vmid: int, timeout: float) -> bool:
        """Press a guest's power button."""
        return self._known(vmid).shutdown(timeout)

    def forget(self, vmid: int) -> None:
        """Remove everything of a guest that is off, except its disks and its console log."""
        machine = self._known(vmid)
        machine.stop()
        shutil.rmtree(machine.folder, ignore_errors=True)

    def _machine(self, vmid: int, name: str) -> Machine:
        return Machine(self._lab, str(vmid), name)

    def _known(self, vmid: int) -> Machine:
        return self._machine(vmid, record.name_of(self._lab, vmid))

    def _write_seed(self, machine: Machine, spec: GuestSpec) -> None:
        assert spec.cloud_init is not None  # noqa: S101 - the caller has checked it
        folder = machine.folder / "seed"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        for name, text in seed.files(spec.cloud_init, spec.nics).items():
            (folder / name).write_text(text)
        iso = machine.folder / "seed.iso"
        iso.unlink(missing_ok=True)
        iso.touch(0o600)
        self._image(
            ["genisoimage", "-quiet", "-volid", "cidata", "-joliet", "-rock", "-o", str(iso), str(folder)]
        )
        shutil.rmtree(folder)

    def _image(self, argv: list[str]) -> None:
        try:
            run(argv)
        except LabError as error:
            raise GuestError(str(error)) from error


def _quoted(path: Path) -> str:
    """Escape a path for an option of QEMU, where a comma ends a value."""
    return str(path).replace(",", ",,")
