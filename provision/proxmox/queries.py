"""Queries to a hypervisor's API and the shapes of their answers.

Costs: permissions, VM list, mappings and one storage's content are one request each, a VM's config is one
more; nothing else is asked, whatever the inventory holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from provision.contracts.query import Unknown
from provision.contracts.snapshot import Snapshot
from provision.proxmox import marker
from provision.proxmox.marker import Marker

# ---------------------------------------------------------------- queries


@dataclass(frozen=True, slots=True)
class Permissions:
    """What the token may do; answer: Rights."""

    kind: ClassVar[str] = "pve-permissions"


@dataclass(frozen=True, slots=True)
class VmList:
    """The VMs of the hypervisor's node, as they are now; answer: tuple of VmEntry."""

    kind: ClassVar[str] = "pve-vms"


@dataclass(frozen=True, slots=True)
class VmConfig:
    """One VM; answer: VmState, Elsewhere, or None when nothing has this number."""

    vmid: int
    kind: ClassVar[str] = "pve-vm"


@dataclass(frozen=True, slots=True)
class Mappings:
    """PCI mappings with the node's own check; answer: tuple of PciMap."""

    kind: ClassVar[str] = "pve-mappings"


@dataclass(frozen=True, slots=True)
class UsbMappings:
    """USB mappings with the node's own check; answer: tuple of PciMap."""

    kind: ClassVar[str] = "pve-usb-mappings"


@dataclass(frozen=True, slots=True)
class StorageContent:
    """Volumes of one storage; answer: tuple of Volume."""

    storage: str
    kind: ClassVar[str] = "pve-content"


@dataclass(frozen=True, slots=True)
class NodeStorages:
    """The storages of the node, with what they take; answer: tuple of StorageEntry.

    Asked where a plan makes disks or images, and not remembered: an unchanged plan costs no more for it.
    """

    kind: ClassVar[str] = "pve-storages"
    remembered: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class NodeBridges:
    """The bridges of the node (Linux, Open vSwitch, SDN); answer: tuple of names. Asked as NodeStorages."""

    kind: ClassVar[str] = "pve-bridges"
    remembered: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Strays:
    """VMs with our tag and one of these numbers; answer: tuple of VmState. What the node lacks costs nothing.

    Args:
        vmids: numbers of all VMs of the inventory, those of this node among them.
    """

    vmids: frozenset[int]
    kind: ClassVar[str] = "pve-strays"
    remembered: ClassVar[bool] = False


# ---------------------------------------------------------------- answers


@dataclass(frozen=True, slots=True)
class Rights:
    """Privileges by path, as in `/access/permissions` (1 = inherited by the paths below)."""

    paths: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def may(self, path: str, privilege: str) -> bool:
        """Whether the token has a privilege on a path, by its entry or the nearest one above."""
        place = path.rstrip("/") or "/"
        if place in self.paths:
            return privilege in self.paths[place]
        while place != "/":
            place = place.rsplit("/", 1)[0] or "/"
            if place in self.paths:
                return self.paths[place].get(privilege) == 1
        return False


@dataclass(frozen=True, slots=True)
class VmEntry:
    """One line of the VM list.

    Args:
        vmid: number, unique in the Proxmox cluster.
        node: Proxmox node it lives on.
        kind: `qemu` or `lxc`.
        name: its name.
        status: `running`, `stopped`, ...
        tags: as set.
        memory: its memory in MiB.
        uptime: seconds since its start, 0 when it is off or has just started.
    """

    vmid: int
    node: str
    kind: str
    name: str
    status: str
    tags: tuple[str, ...] = ()
    memory: int = 0
    uptime: int = field(default=0, repr=False, compare=False)  # it always moves


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The number belongs to a container, or to a VM on another node.

    Args:
        node: Proxmox node it lives on.
        kind: `qemu` or `lxc`.
        name: its name.
        marker: of a VM with our tag.
        devices: keys of its devices of that node (`hostpci0`), as far as they are known.
    """

    node: str
    kind: str
    name: str
    marker: Marker | None = None
    devices: tuple[str, ...] = ()

    @property
    def owner(self) -> str:
        """The owner of the number, for messages."""
        what = "a container" if self.kind == "lxc" else "a VM"
        if self.marker is not None:
            what = f"node {self.marker.node} of inventory {self.marker.inventory}"
        return f"{what} on {self.node}, {self.name}"


@dataclass(frozen=True, slots=True)
class Creation:
    """The task that last began to create a VM.

    Args:
        upid: its identifier.
        own: our login began it.
        running: its worker is alive.
    """

    upid: str
    own: bool
    running: bool


@dataclass(frozen=True, slots=True)
class VmState:
    """One VM as it is.

    Args:
        vmid: its number.
        name: its name.
        status: `running`, `stopped`, ...
        config: active values by key, all as text; without the digest.
        pending: values that wait for a power cycle; None = the key is removed.
        digest: of the configuration, for writes.
        uptime: seconds since its start.
        creation: of a VM that was never finished, the task that began it, if our login may see one.
    """

    vmid: int
    name: str
    status: str
    config: Mapping[str, str]
    pending: Mapping[str, str | None] = field(default_factory=dict)
    digest: str = ""
    uptime: int = field(default=0, repr=False, compare=False)  # it always moves
    creation: Creation | None = None

    @property
    def running(self) -> bool:
        """Whether it runs (paused counts)."""
        return self.status != "stopped"

    @property
    def lock(self) -> str:
        """What holds it (`backup`, `create`), or empty."""
        return self.config.get("lock", "")

    @property
    def is_unfinished(self) -> bool:
        """Whether all of it is the lock of its creation: the configuration is written when the task ends."""
        return self.lock == "create" and set(self.config) <= {"lock"}

    @property
    def is_abandoned(self) -> bool:
        """Whether a task of our login began it and died: no worker will ever finish it."""
        creation = self.creation
        return self.is_unfinished and creation is not None and creation.own and not creation.running

    @property
    def noted_marker(self) -> Marker | None:
        """The marker in its Notes, which people may have overwritten."""
        return marker.read(self.next_value("description"))

    @property
    def marker(self) -> Marker | None:
        """Whose it is: by its Notes, or, while it has our tag, by the second home of the marker."""
        noted = self.noted_marker
        if noted is None and marker.TAG not in re.split("[;, ]", self.next_value("tags")):
            return None
        macs = {
            part.partition("=")[2].upper()
            for key in self.config
            if re.fullmatch(r"net\d+", key)
            for part in self.config[key].split(",")
        }
        kept = marker.read_smbios1(self.next_value("smbios1"), self.vmid, self.name, macs)
        # The snippet with the first key leaves the configuration together with that key.
        kept = kept if kept is None or self.next_value("cicustom") else kept.settled()
        return kept if noted is None else marker.united(noted, kept)

    def marker_of(self, inventory: str, node: str) -> Marker | None:
        """Return its marker if that names this node of this inventory: the VM is ours."""
        marker = self.marker
        ours = marker is not None and (marker.inventory, marker.node) == (inventory, node)
        return marker if ours else None

    @property
    def local_devices(self) -> tuple[str, ...]:
        """Keys of devices of its node, which Proxmox VE does not migrate.

        Source: qemu-server, `PVE/QemuServer.pm`, check_local_resources.
        """
        return tuple(
            key
            for key, value in sorted(self.config.items())
            if re.fullmatch(r"(hostpci|usb|serial|parallel)\d+", key)
            and not re.match(r"(host=)?spice|socket", value)
        )

    @property
    def owner(self) -> str:
        """The owner, for messages."""
        mark = self.marker
        return (
            f"node {mark.node} of inventory {mark.inventory}"
            if mark
            else f"a VM without our marker, {self.name}"
        )

    def next_value(self, key: str) -> str:
        """Return the value that a key has or will have after a power cycle; empty if none."""
        if key in self.pending:
            return self.pending[key] or ""
        return self.config.get(key, "")


@dataclass(frozen=True, slots=True)
class PciMap:
    """A mapping of a PCI card or a USB device.

    Args:
        name: its id.
        entries: property strings, one a device.
        problems: errors that this node's check reports.
        digest: of the mapping file, for writes.
        description: free text.
    """

    name: str
    entries: tuple[str, ...]
    problems: tuple[str, ...] = ()
    digest: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume (`local:import/debian.qcow2`), its size in bytes."""

    volid: str
    content: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class StorageEntry:
    """A storage as the node sees it.

    Args:
        name: its id.
        content: content types that it takes.
        enabled: neither disabled nor bound to other nodes.
        active: the node reaches it now.
        available: MiB that are free; None if that is not said.
        kind: its type (`dir`, `zfspool`, `esxi`), or empty.
    """

    name: str
    content: frozenset[str]
    enabled: bool = True
    active: bool = True
    available: int | None = field(default=None, compare=False)  # it always moves
    kind: str = ""


def vm_answer(snapshot: Snapshot, vmid: int) -> VmState | Elsewhere | Unknown | None:
    """Return the answer about a VM; Unknown when nobody asked."""
    if VmConfig(vmid) not in snapshot:
        return Unknown(f"{snapshot.system} was not asked about VM {vmid}")
    answer: VmState | Elsewhere | Unknown | None = snapshot[VmConfig(vmid)]
    return answer


def vm_state(snapshot: Snapshot, vmid: int) -> VmState | None:
    """Return the VM if it is there, on this node."""
    answer = vm_answer(snapshot, vmid)
    return answer if isinstance(answer, VmState) else None
