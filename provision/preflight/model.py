"""What a preflight rule is, and what it looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from provision.facts.hypervisor import HypervisorFacts
from provision.inventory import Inventory
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node
from provision.resources.contracts import (
    Change,
    Impossible,
    Resource,
    Snapshot,
    Unknown,
    changes_of,
    remedy_of,
)
from provision.roles import names
from provision.values.diagnostics import Diagnostic, Severity

if TYPE_CHECKING:
    from provision.facts.api import ApiFacts
    from provision.resources.proxmox.queries import VmState

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class UnknownYet:
    """A rule that lacks evidence now, and why; it is asked again when its step is reached."""

    reason: str
    subject: str = ""


Finding = Diagnostic | UnknownYet


@dataclass(frozen=True, slots=True)
class Rule:
    """One check before anything is touched.

    Args:
        codes: stable codes of its diagnostics.
        when: when it refuses or warns, for the reference.
        remedy: what helps, for the reference.
        check: looks at the site and answers findings; empty means fine.
        severity: error refuses the run, warning is shown.
        removal: it bears on a removal, too; a destroy runs no other.
    """

    codes: tuple[str, ...]
    when: str
    remedy: str
    check: Callable[[Site], list[Finding]]
    severity: Severity = Severity.ERROR
    removal: bool = False


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
        return HypervisorFacts(self.seen(names.ssh(hypervisor.name)))

    def api(self, hypervisor: Hypervisor) -> ApiFacts:
        """Return what a hypervisor's API said."""
        from provision.facts.api import ApiFacts  # noqa: PLC0415 - slow, see rules()

        return ApiFacts(self.seen(names.api(hypervisor.name)))

    def vm(self, hypervisor: Hypervisor, node: Node) -> VmState | None:
        """Return a node's own VM, if it is there."""
        found = self.api(hypervisor).vm(node.vmid) if node.vmid is not None else None
        ours = found is not None and found.marker_of(self.inventory.name, node.name) is not None
        return found if ours else None
