"""Facts of a hypervisor's host that other hosts do not have, for roles and rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from provision.contracts.query import Unknown
from provision.hosts.facts import HostFacts
from provision.hosts.queries.file import FileText
from provision.hosts.queries.shell import Shell, ShellResult
from provision.hosts.queries.system import Bridges, NetworkLinks
from provision.hosts.resources.base import is_path
from provision.hosts.resources.pci import IommuState, IommuStatus, ModuleCandidates
from provision.proxmox.nic_facts import HOST_NICS, HostNics, host_nics
from provision.proxmox.pci_entries import reservations
from provision.proxmox.usb_facts import USB_DEVICES, UsbPlugged, usb_devices

STORAGES = FileText("/etc/pve/storage.cfg")
VM_DEVICES = Shell(
    r"grep -sHE '^(\[|(net|hostpci|usb)[0-9]+:|delete:)' /etc/pve/nodes/*/qemu-server/*.conf || true"
)
"""Devices of all VMs and heads of sections, one a line: also of VMs that the inventory does not know."""
POOLS = Shell("[ -r /etc/pve/user.cfg ] && sed -n 's/^pool:\\([^:]*\\):.*/\\1/p' /etc/pve/user.cfg")
"""Names of the pools, whatever the token may see (pve-access-control, `PVE/AccessControl.pm`)."""
RESERVATIONS = FileText("/run/qemu-server/pci-id-reservations")
"""Which running VM holds which PCI function, as Proxmox VE notes it at each start."""

_SECTION = re.compile(r"(\S+):\s*(\S+)\s*")
_DEVICE = re.compile(r".*/([^/]+)/qemu-server/([0-9]+)\.conf:(?:\[([^\]]*)\].*|(\w+): ?(.*))")


_FOLDERS = {"import": "import", "iso": "template/iso"}
"""Folders of content in a storage (pve-storage, `PVE/Storage/Plugin.pm`, vtype_subdirs)."""


@dataclass(frozen=True, slots=True)
class VmDevice:
    """A network or PCI device in a VM's configuration: `net0` or `hostpci0`, and its property string.

    Args:
        node: Proxmox node that the VM lives on.
        vmid: the VM's number.
        key: `net0`.
        value: its property string.
        pending: it comes at the VM's next start, and is not there yet.
        leaving: it is there until the VM's next stop.
    """

    node: str
    vmid: int
    key: str
    value: str
    pending: bool = False
    leaving: bool = False


class HypervisorFacts(HostFacts):
    """The facts of a hypervisor's host."""

    __slots__ = ()

    @property
    def iommu(self) -> IommuStatus | Unknown:
        """State of the IOMMU: IommuState."""
        return self.answer_as(IommuState(), IommuStatus)

    def modules(self, address: str) -> frozenset[tuple[str, str]] | Unknown:
        """Return class code and module of what would drive a card, in any kernel: ModuleCandidates."""
        return self.answer_as(ModuleCandidates(address), frozenset)

    @property
    def bridges(self) -> tuple[str, ...]:
        """Names of the network bridges, none when they are not known: Bridges."""
        return self.known(Bridges(), tuple, ())

    @property
    def links(self) -> tuple[str, ...]:
        """Names of all network interfaces, none when they are not known: NetworkLinks."""
        return self.known(NetworkLinks(), tuple, ())

    @property
    def nics(self) -> HostNics | Unknown:
        """What the host uses its network cards for: HOST_NICS."""
        nics = host_nics(self.output(HOST_NICS))
        return Unknown("the host's network was not read") if nics is None else nics

    @property
    def usb(self) -> tuple[UsbPlugged, ...] | Unknown:
        """USB devices that are plugged in: USB_DEVICES."""
        devices = usb_devices(self.output(USB_DEVICES))
        return Unknown("they were not read") if devices is None else devices

    @property
    def pools(self) -> tuple[str, ...] | Unknown:
        """Names of the pools of VMs: POOLS."""
        result = self.answer_as(POOLS, ShellResult)
        if isinstance(result, Unknown):
            return result
        if result.rc:
            return Unknown("/etc/pve/user.cfg was not read")
        return tuple(result.stdout.decode(errors="replace").split())

    @property
    def storages(self) -> Mapping[str, Mapping[str, str]] | Unknown:
        """Keys of each storage by its name, `type` among them: STORAGES.

        Source: pve-storage, `parse_section_header` of `PVE/Storage/Plugin.pm`: sections `TYPE: NAME`, the
        type in any case, with indented keys.
        """
        text = self.text(STORAGES)
        if isinstance(text, Unknown):
            return text
        keys: dict[str, dict[str, str]] = {}
        section: dict[str, str] = {}
        for line in text.splitlines():
            head = _SECTION.fullmatch(line)
            if head is not None:
                section = keys.setdefault(head[2], {"type": head[1].lower()})
            elif line[:1] in {"\t", " "} and line.strip():
                key, _, value = line.strip().partition(" ")
                section[key] = value.strip()
        return keys

    @property
    def reservations(self) -> Mapping[str, int] | None:
        """Which VM holds which PCI function; None when that is not known: RESERVATIONS."""
        text = self.text(RESERVATIONS)
        return None if isinstance(text, Unknown) else reservations(text)

    @property
    def vm_devices(self) -> tuple[VmDevice, ...]:
        """Network and PCI devices of all VMs of the cluster, none when they are not known: VM_DEVICES.

        A VM's present devices come before the first section of its file. The section `[PENDING]` holds what
        its next stop brings: new values, and a line `delete:` with keys, some after a `!`. All other sections
        are snapshots.
        """
        files: dict[tuple[str, int], _VmFile] = {}
        for row in map(_DEVICE.fullmatch, self.output(VM_DEVICES).splitlines()):
            if row is not None:
                node, vmid, section, key, value = row.groups()
                file = files.setdefault((node, int(vmid)), _VmFile())
                if section is not None:
                    file.section = section
                else:
                    file.add(key, value.strip())
        return tuple(device for (node, vmid), file in files.items() for device in file.devices(node, vmid))


@dataclass(slots=True)
class _VmFile:
    """What the lines of one VM's file say so far."""

    section: str = ""
    present: dict[str, str] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)

    def add(self, key: str, value: str) -> None:
        if self.section == "PENDING" and key == "delete":
            self.deleted.update(word.lstrip("!") for word in re.split("[,; ]+", value))
        elif self.section == "PENDING":
            self.pending[key] = value
        elif not self.section and key != "delete":
            self.present[key] = value

    def devices(self, node: str, vmid: int) -> Iterator[VmDevice]:
        for key, value in self.present.items():
            yield VmDevice(node, vmid, key, value, leaving=key in self.deleted or key in self.pending)
        for key, value in self.pending.items():
            yield VmDevice(node, vmid, key, value, pending=True)


def storage_folder(facts: HypervisorFacts, storage: str, content: str) -> str | None:
    """Return the folder of a storage for a content (`import`, `iso`); None without a plain one.

    Source: pve-storage, `PVE/Storage/Plugin.pm`: `content-dirs` names other folders (`iso=cd,import=disks`).
    """
    known = facts.storages
    section = {} if isinstance(known, Unknown) else known.get(storage, {})
    root = section.get("path", "").rstrip("/")
    if not root.startswith("/"):
        return None
    pairs = (pair.partition("=") for pair in section.get("content-dirs", "").split(","))
    declared = {name.strip(): folder.strip().removeprefix("./").strip("/") for name, _, folder in pairs}
    folder = re.sub("/+", "/", f"{root}/{declared.get(content) or _FOLDERS[content]}")
    return folder if is_path(folder) else None
