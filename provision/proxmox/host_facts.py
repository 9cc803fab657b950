"""Facts of a hypervisor's host that other hosts do not have, for roles and rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from provision.contracts.query import Unknown
from provision.hosts.facts import HostFacts
from provision.hosts.queries.file import FileText
from provision.hosts.queries.shell import Shell
from provision.hosts.queries.system import Bridges
from provision.hosts.resources.pci import IommuState, IommuStatus, ModuleCandidates

STORAGES = FileText("/etc/pve/storage.cfg")
VM_DEVICES = Shell(r"grep -sHE '^(\[|(net|hostpci)[0-9]+:)' /etc/pve/nodes/*/qemu-server/*.conf || true")
"""Devices of all VMs and heads of sections, one a line: also of VMs that the inventory does not know."""

_SECTION = re.compile(r"([a-z0-9]+):\s+(\S+)\s*")
_DEVICE = re.compile(r".*/([^/]+)/qemu-server/([0-9]+)\.conf:(?:(\w+): ?(.*)|\[.*)")


@dataclass(frozen=True, slots=True)
class VmDevice:
    """A network or PCI device in a VM's configuration: `net0` or `hostpci0`, and its property string.

    Args:
        node: Proxmox node that the VM lives on.
        vmid: the VM's number.
        key: `net0`.
        value: its property string.
    """

    node: str
    vmid: int
    key: str
    value: str


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
    def storages(self) -> Mapping[str, Mapping[str, str]] | Unknown:
        """Keys of each storage by its name, `type` among them: STORAGES.

        Source: pve-storage, `PVE/SectionConfig.pm`: sections `TYPE: NAME` with indented keys.
        """
        text = self.text(STORAGES)
        if isinstance(text, Unknown):
            return text
        keys: dict[str, dict[str, str]] = {}
        section: dict[str, str] = {}
        for line in text.splitlines():
            head = _SECTION.fullmatch(line)
            if head is not None:
                section = keys.setdefault(head[2], {"type": head[1]})
            elif line[:1] in {"\t", " "} and line.strip():
                key, _, value = line.strip().partition(" ")
                section[key] = value.strip()
        return keys

    @property
    def vm_devices(self) -> tuple[VmDevice, ...]:
        """Network and PCI devices of all VMs of the cluster, none when they are not known: VM_DEVICES.

        A VM's present devices come before the first section of its file; sections are pending values and
        snapshots.
        """
        devices: list[VmDevice] = []
        ended: set[str] = set()
        for row in map(_DEVICE.fullmatch, self.output(VM_DEVICES).splitlines()):
            if row is None:
                continue
            node, vmid, key, value = row.groups()
            if key is None:
                ended.add(vmid)
            elif vmid not in ended:
                devices.append(VmDevice(node, int(vmid), key, value.strip()))
        return tuple(devices)
