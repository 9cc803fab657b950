"""Guests as systemd-nspawn containers: userland really boots; no kernel, firmware, disks or cards."""

from __future__ import annotations

import base64
import os
import re
import uuid
from pathlib import Path
from typing import Any

from provision.lab import record, seed
from provision.lab.contracts import CloudInit, GuestError, GuestSpec, Nic
from provision.lab.nspawn import Container
from provision.lab.recipe import ASSETS, run

_GIB = 1024**3
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,30}")
_UID = 1000


class ContainerGuests:
    """Implements `Guests`. Disks are empty stand-ins of the right size; the file system is an overlay.

    Args:
        lab: the lab's folder.
        rootfs: the shared root filesystem.
    """

    def __init__(self, lab: Path, rootfs: Path) -> None:
        self._lab = lab
        self._rootfs = rootfs

    def import_disk(self, source: Path, target: Path, size: float) -> None:
        """Create an empty stand-in of a disk; `source` must exist, as for a real import."""
        if not source.is_file():
            raise GuestError(f"image {source.name} does not exist")
        self.create_disk(target, size)
        with target.open("r+b") as out:
            out.write(uuid.uuid4().bytes)  # which disk it is: the overlay belongs to this one

    def create_disk(self, target: Path, size: float) -> None:
        """Create an empty, sparse file of `size` GiB."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as out:
            out.truncate(int(size * _GIB))

    def grow_disk(self, disk: Path, size: float) -> None:
        """Grow the stand-in to `size` GiB."""
        with disk.open("r+b") as out:
            out.truncate(int(size * _GIB))

    def create_efivars(self, target: Path) -> None:
        """Create a stand-in with the size of OVMF's variables."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as out:
            out.truncate(540672)

    def start(self, spec: GuestSpec) -> None:
        """Start a guest; a new instance gets its seed applied first. Raises GuestError."""
        machine = self._container(spec.vmid, spec.name, tuple(nic.mac for nic in spec.nics))
        if machine.pid() is not None:
            raise GuestError(f"VM {spec.vmid} already running")
        disk = _disk_id(spec.disks[0]) if spec.disks else ""
        booted = machine.folder / "system-disk"
        if booted.exists() and booted.read_text() != disk:
            machine.forget()  # what was on the former system disk went with it
        machine.folder.mkdir(parents=True, exist_ok=True)
        booted.write_text(disk)
        record.note_name(self._lab, spec.vmid, spec.name)
        applied = machine.folder / "instance-id"
        instance_id = spec.cloud_init.instance_id if spec.cloud_init else "none"
        if not applied.exists() or applied.read_text() != instance_id:
            apply_seed(machine, spec.name, spec.cloud_init, spec.nics)
            applied.write_text(instance_id)
        machine.start()

    def pid(self, vmid: int) -> int | None:
        """Return the process that supervises a guest."""
        return self._known(vmid).pid()

    def stop(self, vmid: int) -> None:
        """Kill a guest."""
        self._known(vmid).stop()

    def shutdown(self, vmid: int, timeout: float) -> bool:
        """Ask the guest's init to shut down."""
        return self._known(vmid).shutdown(timeout)

    def forget(self, vmid: int) -> None:
        """Remove a guest's overlay, which holds everything that would be on its disk."""
        machine = self._known(vmid)
        machine.stop()
        machine.forget()

    def _known(self, vmid: int) -> Container:
        return self._container(vmid, record.name_of(self._lab, vmid), ())

    def _container(self, vmid: int, name: str, macs: tuple[str, ...]) -> Container:
        return Container(self._lab, str(vmid), name, self._rootfs, macs)


def _disk_id(disk: Path) -> str:
    """Return what tells one imported stand-in of a disk from another."""
    with disk.open("rb") as file:
        return file.read(16).hex()


def apply_seed(machine: Container, name: str, cloud_init: CloudInit | None, nics: tuple[Nic, ...]) -> None:
    """Do what cloud-init does at the first boot of an instance; the container must be off.

    Raises:
        GuestError: the seed is invalid.
    """
    hostname = cloud_init.hostname if cloud_init else name
    machine.write("etc/hostname", hostname + "\n")
    machine.write("etc/hosts", f"127.0.1.1 {hostname} {hostname}\n127.0.0.1 localhost\n")
    machine.write("etc/machine-id", uuid.uuid4().hex + "\n")
    machine.lay_clock()
    machine.write("usr/bin/cloud-init", (ASSETS / "cloud-init").read_text(), 0o755)
    # cloud-init writes this file at the end of an instance's first boot.
    machine.write("var/lib/cloud/instance/boot-finished", "lab stand-in\n")
    for index, nic in enumerate(nics):
        address = seed.subnet(cloud_init, index) if cloud_init else None
        machine.write(f"etc/systemd/network/10-nic{index}.network", _network(nic, address))
    settings = _configured(machine) | (seed.vendor(cloud_init) if cloud_init else {})
    _lay_host_keys(machine, settings, hostname)
    for item in settings.get("write_files") or []:
        _lay_file(machine, item)
    if cloud_init:
        _lay_user(machine, cloud_init)


def _configured(machine: Container) -> dict[str, Any]:
    """Return the settings of /etc/cloud/cloud.cfg.d, over which a vendor part wins."""
    import yaml  # noqa: PLC0415 - slow to import

    settings: dict[str, Any] = {}
    for path in sorted((machine.upper / "etc/cloud/cloud.cfg.d").glob("*.cfg")):
        settings |= yaml.safe_load(path.read_text()) or {}
    return settings


def _network(nic: Nic, address: Any) -> str:
    if address is None:
        body = "DHCP=ipv4\n"
    else:
        body = f"Address={address['ip']}\n" + (f"Gateway={address['gw']}\n" if "gw" in address else "")
    return (
        f"[Match]\nMACAddress={nic.mac.lower()}\n\n[Network]\n{body}LinkLocalAddressing=no\nIPv6AcceptRA=no\n\n"
        "[DHCPv4]\nClientIdentifier=mac\n"
    )


def _lay_host_keys(machine: Container, settings: dict[str, Any], hostname: str) -> None:
    folder = machine.upper / "etc/ssh"
    if folder.is_dir() and settings.get("ssh_deletekeys", True):
        for old in folder.glob("ssh_host_*"):
            old.unlink()
    given = seed.host_keys(settings)
    for key in given:
        machine.write(f"etc/ssh/ssh_host_{key.kind}_key", key.private.rstrip("\n") + "\n", 0o600)
        machine.write(f"etc/ssh/ssh_host_{key.kind}_key.pub", key.public.rstrip("\n") + "\n")
    if not given and not any(folder.glob("ssh_host_*_key")):
        machine.write("etc/ssh/.keep", "")
        key_file = folder / "ssh_host_ed25519_key"
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"root@{hostname}", "-f", str(key_file)])


def _lay_file(machine: Container, item: dict[str, Any]) -> None:
    content = str(item.get("content", ""))
    encoding = str(item.get("encoding", "text/plain"))
    if encoding in {"b64", "base64"}:
        content = base64.b64decode(content).decode()
    elif encoding != "text/plain":
        raise GuestError(f"write_files: the container driver does not support the encoding {encoding}")
    path = str(item["path"]).lstrip("/")
    if ".." in Path(path).parts:
        raise GuestError(f"write_files: invalid path {item['path']}")
    machine.write(path, content, int(str(item.get("permissions", "0644")), 8))


def _lay_user(machine: Container, cloud_init: CloudInit) -> None:
    user = cloud_init.user
    if not _USER.fullmatch(user):
        raise GuestError(f"invalid user name {user!r}")
    if user == "root":
        home, uid = "root", 0
    else:
        home, uid = f"home/{user}", _UID
        for name, line in (
            ("etc/passwd", f"{user}:x:{_UID}:{_UID}:{user}:/home/{user}:/bin/bash"),
            ("etc/group", f"{user}:x:{_UID}:"),
            ("etc/shadow", f"{user}:!:19000:0:99999:7:::"),
        ):
            text = machine.read(name) or ""
            if not any(row.startswith(f"{user}:") for row in text.splitlines()):
                machine.write(name, f"{text.rstrip()}\n{line}\n", 0o640 if name == "etc/shadow" else 0o644)
        machine.write("etc/sudoers.d/90-cloud-init-users", f"{user} ALL=(ALL) NOPASSWD:ALL\n", 0o440)
    keys = "".join(f"{key}\n" for key in seed.authorized_keys(cloud_init))
    machine.write(f"{home}/.ssh/authorized_keys", keys, 0o600, uid)
    if uid:
        for folder in (machine.upper / home, machine.upper / home / ".ssh"):
            os.chown(folder, uid, uid)
    (machine.upper / home / ".ssh").chmod(0o700)
