"""Facts from a hypervisor's API, for roles and rules."""

from __future__ import annotations

from provision.contracts.query import Unknown
from provision.hosts.view import View
from provision.proxmox.queries import (
    Mappings,
    NodeBridges,
    NodeStorages,
    PciMap,
    Permissions,
    Rights,
    StorageEntry,
    VmConfig,
    VmEntry,
    VmList,
    VmState,
)


class ApiFacts(View):
    """The facts of a hypervisor's API."""

    __slots__ = ()

    @property
    def rights(self) -> Rights | Unknown:
        """What the token may do: Permissions."""
        return self.answer_as(Permissions(), Rights)

    @property
    def vms(self) -> tuple[VmEntry, ...] | Unknown:
        """The VMs of the hypervisor's node: VmList."""
        return self.answer_as(VmList(), tuple)

    @property
    def mappings(self) -> tuple[PciMap, ...] | Unknown:
        """All PCI mappings: Mappings."""
        return self.answer_as(Mappings(), tuple)

    @property
    def storages(self) -> tuple[StorageEntry, ...] | Unknown:
        """The storages of the node that the token may see: NodeStorages."""
        return self.answer_as(NodeStorages(), tuple)

    @property
    def bridges(self) -> tuple[str, ...] | Unknown:
        """The bridges of the node that the token may see: NodeBridges."""
        return self.answer_as(NodeBridges(), tuple)

    def vm(self, vmid: int) -> VmState | None:
        """Return the VM with a number, if it is known to be there, on this node: VmConfig."""
        state = self.answer(VmConfig(vmid))
        return state if isinstance(state, VmState) else None
