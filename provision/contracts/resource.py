"""A desired state on one system, as data with pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from provision.contracts.change import Change, Key
from provision.contracts.remedy import Remedy
from provision.contracts.snapshot import Snapshot
from provision.values.diagnostics import Source


class Resource(Protocol):
    """A desired state on one system: a frozen dataclass.

    `source` is the inventory line it comes from.
    """

    @property
    def key(self) -> Key:
        """Identity."""
        ...

    @property
    def source(self) -> Source | None:
        """Inventory line, if there is one."""
        ...

    def queries(self) -> tuple[Any, ...]:
        """Return the questions whose answers `changes` and `fix` look at."""
        ...

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Return what differs; empty means: as desired. Unknown answers become ATTENTION changes."""
        ...

    def fix(self, seen: Snapshot) -> Remedy:
        """Return how to mend what `changes` names; only called when it names something."""
        ...


@runtime_checkable
class Mergeable(Protocol):
    """A kind whose resources with one key unite (kernel arguments, modules, labels)."""

    def merge(self, other: Any) -> Any:
        """Return the union, or None when the two contradict each other."""
        ...


def ask(resources: Iterable[Resource]) -> frozenset[Any]:
    """Return all questions of some resources."""
    return frozenset(query for each in resources for query in each.queries())
