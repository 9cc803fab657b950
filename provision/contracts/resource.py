"""A desired state on one system, as data with pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Protocol, runtime_checkable

from provision.contracts.change import Change, Key, Op
from provision.contracts.query import Unknown
from provision.contracts.remedy import Impossible, Remedy
from provision.contracts.snapshot import Snapshot
from provision.values.diagnostics import Diagnostic, Source


class Resource(Protocol):
    """A desired state on one system: a frozen dataclass.

    `source` is the inventory line it comes from.
    """

    @property
    def key(self) -> Key:
        """Identity."""

    @property
    def source(self) -> Source | None:
        """Inventory line, if there is one."""

    def queries(self) -> tuple[Any, ...]:
        """Return the queries whose answers `changes` and `fix` look at."""

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return what differs; empty means: as desired.

        Called through `changes_of`, which handles Unknown answers: here every query has a real answer.
        """

    def fix(self, snapshot: Snapshot, /) -> Remedy:
        """Return how to correct what `changes` names; only called when it names something."""


@dataclass(frozen=True, slots=True)
class KeyedResource:
    """A base for resources: their key is made of system, kind and what tells one from others of its kind.

    Args:
        system: `node-1/ssh`.
        source: inventory line.
    """

    kind: ClassVar[str]

    system: str
    source: Source | None = field(default=None, compare=False, kw_only=True)

    @property
    def key(self) -> Key:
        """Identity."""
        # As `Key(...)`, without its Python function: a plan makes several keys for each resource.
        return tuple.__new__(Key, (self.system, self.kind, self._key_name()))

    def _key_name(self) -> str:
        """Return what tells it from others of its kind on its system; the kind where there is only one."""
        return self.kind

    def _refused(self, code: str, summary: str, **more: Any) -> Impossible:
        """Return the remedy of a difference that nothing may be done about."""
        more = {"subject": self.system, "source": self.source, **more}
        return Impossible(Diagnostic(code, summary, **more))


@runtime_checkable
class ToleratesUnknown(Protocol):
    """A resource that can decide without the answers to some of its queries."""

    def optional_queries(self) -> tuple[Any, ...]:
        """Return the queries whose answer may be Unknown in `changes` and `fix`."""


@runtime_checkable
class Mergeable(Protocol):
    """A kind whose resources with one key unite (kernel arguments, modules, labels)."""

    def merge(self, other: Any) -> Any:
        """Return the union, or None when the two contradict each other."""


AnswerId = tuple[str, Any]
"""The answer of a system to a query."""


@runtime_checkable
class AffectsAnswers(Protocol):
    """A resource whose changes alter answers beyond those to its own queries."""

    def affects(self, changes: Sequence[Change], /) -> frozenset[AnswerId]:
        """Return the answers that other steps may read and that these changes alter."""


def affected_answers(resource: Resource, changes: Sequence[Change]) -> frozenset[AnswerId]:
    """Return the answers that changes of a resource alter for other steps; none for most kinds."""
    return resource.affects(changes) if isinstance(resource, AffectsAnswers) else frozenset()


@runtime_checkable
class Creatable(Protocol):
    """A resource that can say what it brings to a system that does not exist yet."""

    def creation(self) -> tuple[Change, ...]:
        """Return the changes that make it where nothing of it is there."""


def meaning(query: Any) -> str:
    """Return what a query asks about, for people: its kind and its first field (`package nvtop`)."""
    first = next((str(getattr(query, member.name)) for member in fields(query)), "")
    return " ".join(f"{query.kind} {first}".split())[:80]


def unknown_answers(resource: Resource, snapshot: Snapshot) -> Mapping[Any, Unknown]:
    """Return the Unknown answers to a resource's queries that it cannot do without."""
    if not snapshot.unknown:
        return {}
    optional = resource.optional_queries() if isinstance(resource, ToleratesUnknown) else ()
    queries = (query for query in resource.queries() if query in snapshot.unknown and query not in optional)
    return {query: snapshot[query] for query in queries}


def changes_of(resource: Resource, snapshot: Snapshot) -> tuple[Change, ...]:
    """Return how a resource differs; an Unknown answer is a change that needs attention."""
    if not snapshot.unknown:
        return resource.changes(snapshot)
    unknown = unknown_answers(resource, snapshot)
    if not unknown:
        return resource.changes(snapshot)
    return tuple(
        Change(Op.ATTENTION, meaning(query), f"unknown: {answer.reason}") for query, answer in unknown.items()
    )


def remedy_of(resource: Resource, snapshot: Snapshot) -> Remedy:
    """Return how a resource that differs is corrected; nothing is done about one whose state is Unknown."""
    unknown = unknown_answers(resource, snapshot)
    if not unknown:
        return resource.fix(snapshot)
    key = resource.key
    return Impossible(
        Diagnostic(
            "UNKNOWN",
            f"the state of {key.kind} {key.name} is unknown: {next(iter(unknown.values())).reason}",
            subject=key.system,
            evidence=tuple(f"{meaning(query)}: {answer.reason}" for query, answer in unknown.items()),
            source=resource.source,
            untouched=f"{key.kind} {key.name} was not changed",
            remedy="fix the cause and run the command again",
        )
    )


def ask(resources: Iterable[Resource]) -> frozenset[Any]:
    """Return all queries of some resources."""
    return frozenset(query for resource in resources for query in resource.queries())
