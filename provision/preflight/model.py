"""What a preflight rule is, and what it looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from provision.inventory import Inventory
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node
from provision.resources.contracts import CannotTell, Change, Impossible, Resource, Snapshot
from provision.roles import names
from provision.values.diagnostics import Diagnostic, Severity

if TYPE_CHECKING:
    from provision.resources.proxmox.queries import Rights, VmEntry, VmState

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class CannotTellYet:
    """A rule that lacks evidence now, and why; it is asked again when its step is reached."""

    reason: str
    subject: str = ""


Finding = Diagnostic | CannotTellYet


@dataclass(frozen=True, slots=True)
class Rule:
    """One check before anything is touched.

    Args:
        codes: stable codes of its diagnostics.
        when: when it refuses or warns, for the reference.
        remedy: what helps, for the reference.
        check: looks at the site and answers findings; empty means fine.
        severity: error refuses the run, warning is shown.
    """

    codes: tuple[str, ...]
    when: str
    remedy: str
    check: Callable[[Site], list[Finding]]
    severity: Severity = Severity.ERROR


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

    def answer(self, system: str, query: Any) -> Any:
        """Return an answer, or CannotTell when the system is silent or was not asked."""
        seen = self.snapshots.get(system)
        if seen is None:
            return CannotTell(f"{system} has not answered")
        return seen.answers.get(query, CannotTell(f"{system} was not asked"))

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
        return resource.changes(seen)

    def impossible(self, resource: Resource) -> Diagnostic | None:
        """Return why a resource cannot be brought about, if that is known."""
        if not self.changes(resource):
            return None
        remedy = resource.fix(self.snapshots[resource.key.system])
        return remedy.diagnostic if isinstance(remedy, Impossible) else None

    def hypervisors(self) -> Iterator[tuple[Hypervisor, tuple[Node, ...]]]:
        """Yield each hypervisor with its managed VMs."""
        for each in self.inventory.hypervisors.values():
            nodes = tuple(node for node in names.nodes_of(self.inventory, each.name) if node.manage)
            yield each, nodes

    def vm_list(self, hypervisor: Hypervisor) -> tuple[VmEntry, ...] | CannotTell:
        """Return the VMs and containers that a hypervisor's API lists."""
        from provision.resources.proxmox.queries import VmList  # noqa: PLC0415 - slow, see rules()

        found = self.answer(names.api(hypervisor.name), VmList())
        return found if isinstance(found, tuple | CannotTell) else CannotTell("no VM list")

    def vm(self, hypervisor: Hypervisor, node: Node) -> VmState | None:
        """Return a node's own VM, if it is there."""
        from provision.resources.proxmox.queries import VmConfig, VmState  # noqa: PLC0415 - slow, see rules()

        if node.vmid is None:
            return None
        found = self.answer(names.api(hypervisor.name), VmConfig(node.vmid))
        ours = isinstance(found, VmState) and names.is_marked(self.inventory, node, found.marker)
        return found if ours else None

    def rights(self, hypervisor: Hypervisor) -> Rights | CannotTell:
        """Return what the token may do."""
        from provision.resources.proxmox.queries import Permissions, Rights  # noqa: PLC0415 - slow, see rules()

        found = self.answer(names.api(hypervisor.name), Permissions())
        return found if isinstance(found, Rights | CannotTell) else CannotTell("no permissions")


def text_of(answer: Any) -> str | CannotTell:
    """Return the text of a file that was asked for; one that is missing cannot tell."""
    if isinstance(answer, CannotTell):
        return answer
    if isinstance(answer, bytes):
        return answer.decode(errors="replace")
    return CannotTell("there is no such file")
