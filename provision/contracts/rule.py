"""What a preflight rule is, and what it looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from provision.contracts.change import Change, Key
from provision.contracts.query import Unknown
from provision.contracts.remedy import Impossible, Remedy
from provision.contracts.resource import Resource, changes_of, remedy_of
from provision.contracts.snapshot import Snapshot
from provision.inventory import Inventory
from provision.values.diagnostics import Diagnostic, Severity

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class UnknownYet:
    """A rule that lacks evidence now, and why; it is asked again when its step is reached."""

    reason: str
    subject: str = ""


Finding = Diagnostic | UnknownYet


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that rules may look at.

    Args:
        inventory: what was declared.
        snapshots: answers by system; those of silent systems are missing.
        resources: desired states of the run, or of the step that was reached.
        systems: systems that rules about whole systems look at; None for all.
        destroying: all of it is removed; rules about what is made need not hold for that.
    """

    inventory: Inventory
    snapshots: Mapping[str, Snapshot]
    resources: Sequence[Resource]
    systems: frozenset[str] | None = None
    destroying: bool = False
    _by_system: dict[str, list[Resource]] = field(init=False, repr=False, compare=False, default_factory=dict)
    _changes: dict[Key, tuple[Change, ...]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def covers(self, *systems: str) -> bool:
        """Whether rules about whole systems look at one of these."""
        return self.systems is None or not self.systems.isdisjoint(systems)

    def snapshot(self, system: str) -> Snapshot | Unknown:
        """Return the answers of a system, or Unknown when it is silent."""
        return self.snapshots.get(system, Unknown(f"{system} has not answered"))

    def of_kind(self, cls: type[R]) -> Iterator[R]:
        """Yield the resources of one class."""
        for resource in self.resources:
            if isinstance(resource, cls):
                yield resource

    def of_system(self, system: str) -> Sequence[Resource]:
        """Return the resources on one system."""
        if not self._by_system:
            for resource in self.resources:
                self._by_system.setdefault(resource.key.system, []).append(resource)
        return self._by_system.get(system, ())

    def changes(self, resource: Resource) -> tuple[Change, ...]:
        """Return what differs; nothing while its system has not answered all of its questions."""
        if resource.key not in self._changes:
            snapshot = self.snapshots.get(resource.key.system)
            is_known = snapshot is not None and not snapshot.missing(resource.queries())
            self._changes[resource.key] = changes_of(resource, snapshot) if snapshot and is_known else ()
        return self._changes[resource.key]

    def remedy(self, resource: Resource) -> Remedy | None:
        """Return how a difference would be corrected; None where nothing is known to differ."""
        differs = bool(self.changes(resource))
        return remedy_of(resource, self.snapshots[resource.key.system]) if differs else None

    def impossible(self, resource: Resource) -> Diagnostic | None:
        """Return why a resource cannot be brought about, if that is known."""
        remedy = self.remedy(resource)
        return remedy.diagnostic if isinstance(remedy, Impossible) else None


@dataclass(frozen=True, slots=True)
class Rule:
    """One check before anything is touched.

    Args:
        codes: stable codes of its diagnostics.
        when: when it refuses or warns, for the reference.
        remedy: what helps, for the reference.
        check: looks at the evidence and returns findings; empty means fine.
        severity: error refuses the run, warning is shown.
        removal: it bears on a removal, too; a destroy runs no other.
        of_resources: it looks at desired states, so it runs for each step whose states come late. Other rules
            look at whole systems and run once for what a system answered.
    """

    codes: tuple[str, ...]
    when: str
    remedy: str
    check: Callable[[Evidence], list[Finding]]
    severity: Severity = Severity.ERROR
    removal: bool = False
    of_resources: bool = False
