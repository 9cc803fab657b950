"""What the rules about hypervisors and VMs look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from provision.contracts.change import Change
from provision.contracts.query import Unknown
from provision.contracts.remedy import Impossible
from provision.contracts.resource import Resource, changes_of, remedy_of
from provision.contracts.snapshot import Snapshot
from provision.hosts import names as host_names
from provision.inventory import Inventory
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node
from provision.proxmox import names
from provision.proxmox.host_facts import HypervisorFacts
from provision.values.diagnostics import Diagnostic

if TYPE_CHECKING:
    from provision.proxmox.api_facts import ApiFacts
    from provision.proxmox.queries import VmState


R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Site:
    """All that rules may look at.

    Args:
        inventory: what was declared.
        snapshots: answers by system.
        resources: desired states of the run, or of the step that was reached.
    """

    inventory: Inventory
    snapshots: Mapping[str, Snapshot]
    resources: Sequence[Resource]

    def seen(self, system: str) -> Snapshot | Unknown:
        """Return the answers of a system, or Unknown when it is silent."""
        return self.snapshots.get(system, Unknown(f"{system} has not answered"))

    def of_kind(self, cls: type[R]) -> Iterator[R]:
        """Yield the resources of one class."""
        for each in self.resources:
            if isinstance(each, cls):
                yield each

    def changes(self, resource: Resource) -> tuple[Change, ...]:
        """Return what differs; nothing while its system has not answered all of its questions."""
        seen = self.snapshots.get(resource.key.system)
        if seen is None or seen.missing(resource.queries()):
            return ()
        return changes_of(resource, seen)

    def impossible(self, resource: Resource) -> Diagnostic | None:
        """Return why a resource cannot be brought about, if that is known."""
        if not self.changes(resource):
            return None
        remedy = remedy_of(resource, self.snapshots[resource.key.system])
        return remedy.diagnostic if isinstance(remedy, Impossible) else None

    def hypervisors(self) -> Iterator[tuple[Hypervisor, tuple[Node, ...]]]:
        """Yield each hypervisor with its managed VMs."""
        for each in self.inventory.hypervisors.values():
            nodes = tuple(node for node in names.nodes_of(self.inventory, each.name) if node.manage)
            yield each, nodes

    def host(self, hypervisor: Hypervisor) -> HypervisorFacts:
        """Return what a hypervisor's host said."""
        return HypervisorFacts(self.seen(host_names.ssh(hypervisor.name)))

    def api(self, hypervisor: Hypervisor) -> ApiFacts:
        """Return what a hypervisor's API said."""
        from provision.proxmox.api_facts import ApiFacts  # noqa: PLC0415 - slow, see rules()

        return ApiFacts(self.seen(names.api(hypervisor.name)))

    def vm(self, hypervisor: Hypervisor, node: Node) -> VmState | None:
        """Return a node's own VM, if it is there."""
        found = self.api(hypervisor).vm(node.vmid) if node.vmid is not None else None
        ours = found is not None and found.marker_of(self.inventory.name, node.name) is not None
        return found if ours else None
