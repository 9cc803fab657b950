"""The lab's own connection to its hypervisor: ssh with the lab's key and a pinned host key."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress
from pathlib import Path

from provision.lab import netns, processes
from provision.lab.contracts import GuestError, PciDevice

_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_SNIPPET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_TIMEOUT = 180.0  # an emulated machine is slow while two others boot
_MEMINFO_KIB = 1024
_SOCKET_PATH = 80  # ssh adds a random part to it

# Shell builtins only: a fork takes 0.1 s on an emulated processor.
_PCI = r"""
for d in /sys/bus/pci/devices/*; do
  [ -e "$d/vendor" ] || continue
  g=-1; cd -P "$d/iommu_group" 2>/dev/null && g=${PWD##*/}
  w=-; cd -P "$d/driver" 2>/dev/null && w=${PWD##*/}
  b=0; [ ! -e "$d/boot_vga" ] || read -r b <"$d/boot_vga"
  read -r c <"$d/class"; read -r v <"$d/vendor"; read -r i <"$d/device"
  read -r sv <"$d/subsystem_vendor"; read -r sd <"$d/subsystem_device"
  echo "${d##*/} $c $v $i $sv $sd $g $w $b"
done
"""

# As Proxmox VE does (PVE::SysFSTools, pci_dev_bind_to_vfio): announce the ids, unbind, bind.
_BIND = r"""
set -e
modprobe vfio-pci
driver() { w=none; cd -P "/sys/bus/pci/devices/$1/driver" 2>/dev/null && w=${PWD##*/} || true; }
for a in %s; do
  d=/sys/bus/pci/devices/$a
  [ -e "$d" ] || { echo "no PCI device $a" >&2; exit 1; }
  driver "$a"
  [ "$w" != vfio-pci ] || continue
  read -r v <"$d/vendor"; read -r i <"$d/device"
  echo "${v#0x} ${i#0x}" >/sys/bus/pci/drivers/vfio-pci/new_id 2>/dev/null || true
  driver "$a"
  [ ! -e "$d/driver" ] || echo "$a" >"$d/driver/unbind"
  driver "$a"
  [ "$w" = vfio-pci ] || echo "$a" >/sys/bus/pci/drivers/vfio-pci/bind || true
  driver "$a"
  [ "$w" = vfio-pci ] || { echo "Cannot bind $a to vfio" >&2; exit 1; }
done
"""

_FACTS = r"""
nproc
sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo
uname -r
cat /proc/cmdline
cat /proc/sys/kernel/random/boot_id
[ -d /sys/firmware/efi ] && echo efi || echo legacy-bios
"""


class SshHypervisor:
    """Implements `Hypervisor` with the `ssh` program.

    Args:
        lab: the lab's folder, with the key and known_hosts.
        address: the hypervisor's address.
        space: network namespace to connect from, or None if this process is already in it.
        stand_in: the hypervisor is a container: no PCI functions, because sysfs has the machine's own.
    """

    def __init__(self, lab: Path, address: str, space: str | None = None, *, stand_in: bool = False) -> None:
        self._lab = lab
        self._address = address
        self._space = space
        self._stand_in = stand_in

    def pci_devices(self) -> tuple[PciDevice, ...]:
        """Read the PCI functions from sysfs, in one execution."""
        return () if self._stand_in else parse_pci(self._run(_PCI))

    def bind_vfio(self, addresses: tuple[str, ...]) -> None:
        """Bind functions to vfio-pci. Raises GuestError."""
        wrong = [address for address in addresses if not _ADDRESS.fullmatch(address)]
        if wrong:
            raise GuestError(f"invalid PCI address: {wrong[0]}")
        if addresses:
            self._run(_BIND % " ".join(addresses))

    def read_snippet(self, name: str) -> str | None:
        """Return a snippet's text, or None."""
        if not _SNIPPET.fullmatch(name):
            raise GuestError(f"invalid snippet name: {name}")
        text = self._run(f"f=/var/lib/vz/snippets/{name}; [ -f $f ] || exit 0; echo found; cat $f")
        return text.removeprefix("found\n") if text.startswith("found\n") else None

    def reboot(self) -> None:
        """Ask for a clean reboot; return before it happens."""
        self._run("(sleep 1; systemctl reboot) >/dev/null 2>&1 &")

    def facts(self) -> dict[str, object]:
        """Return `cpus`, `memory` (bytes), `kernel`, `cmdline`, `boot_mode` and `boot_id`."""
        cpus, memory, kernel, cmdline, boot_id, mode = self._run(_FACTS).splitlines()
        return {
            "cpus": int(cpus),
            "memory": int(memory) * _MEMINFO_KIB,
            "kernel": kernel,
            "cmdline": cmdline,
            "boot_mode": mode,
            "boot_id": boot_id,
        }

    def _run(self, script: str) -> str:
        shared = self._shared_connection()
        argv = self._inside([*shared, *ssh_command(self._lab, self._address)[1:]])
        try:
            completed = subprocess.run(
                argv, input=script, capture_output=True, text=True, timeout=_TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise GuestError(f"hypervisor {self._address} did not answer in {_TIMEOUT:.0f} s") from error
        if completed.returncode != 0:
            raise GuestError(
                f"hypervisor {self._address}: {completed.stderr.strip()[-300:] or completed.returncode}"
            )
        return completed.stdout

    def _inside(self, argv: list[str]) -> list[str]:
        return argv if self._space is None else netns.inside(self._space, argv)

    def _quiet(self, argv: list[str]) -> bool:
        """Run a command without our descriptors, as it may outlive the call; return whether it succeeded."""
        nothing = subprocess.DEVNULL
        env = processes.environment(self._lab)
        with suppress(subprocess.TimeoutExpired):
            completed = subprocess.run(
                self._inside(argv),
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
                env=env,
                timeout=_TIMEOUT,
                check=False,
            )
            return completed.returncode == 0
        return False

    def _shared_connection(self) -> list[str]:
        """Return ssh over a shared connection: a handshake takes seconds on an emulated processor."""
        control = self._lab / "mux"
        if len(str(control)) > _SOCKET_PATH:
            return ["ssh"]
        words = [
            "ssh",
            "-o",
            f"ControlPath={control}",
            "-o",
            "ServerAliveInterval=5",
            "-o",
            "ServerAliveCountMax=6",
        ]
        target = ssh_command(self._lab, self._address)[1:-1]
        if not (control.exists() and self._quiet([*words, "-O", "check", *target])):
            control.unlink(missing_ok=True)
            self._quiet([*words, "-fNM", "-o", "ControlPersist=120", *target])
        return words


def ssh_command(lab: Path, address: str, user: str = "root") -> list[str]:
    """Return the command that runs a script from standard input on a machine of the site."""
    return [
        "ssh", "-F", "none", "-T", "-i", str(lab / "keys/site"),
        "-o", f"UserKnownHostsFile={lab / 'keys/known_hosts'}", "-o", "GlobalKnownHostsFile=/dev/null",
        "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes",
        "-o", "IdentityAgent=none", "-o", "ConnectTimeout=60", "-o", "LogLevel=ERROR",
        "-o", "KexAlgorithms=curve25519-sha256", f"{user}@{address}", "exec /bin/sh -s",
    ]  # fmt: skip


def parse_pci(text: str) -> tuple[PciDevice, ...]:
    """Parse the output of the script that lists PCI functions."""
    devices = []
    for line in text.splitlines():
        address, cls, vendor, device, sub_vendor, sub_device, group, driver, boot = line.split()
        devices.append(
            PciDevice(
                address=address,
                cls=cls.removeprefix("0x"),
                vendor=vendor.removeprefix("0x"),
                device=device.removeprefix("0x"),
                subsystem_vendor=sub_vendor.removeprefix("0x"),
                subsystem_device=sub_device.removeprefix("0x"),
                iommu_group=int(group),
                driver=None if driver == "-" else driver,
                boot_vga=boot == "1",
            )
        )
    return tuple(devices)
