"""What a role is, and what it may look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from provision.connections.contracts import KeyPair
from provision.contracts.query import Unknown
from provision.contracts.resource import Resource
from provision.contracts.snapshot import Snapshot
from provision.inventory import Inventory, Subject
from provision.values.diagnostics import Diagnostic, Source
from provision.values.errors import Permanent

T = TypeVar("T")


class Generated(Protocol):
    """Values made by the engine, once a run; their home is on a managed system."""

    def host_key(self, purpose: str) -> KeyPair:
        """Return an ed25519 key pair, the same for the same purpose within one run."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """All that a role may look at.

    Args:
        inventory: what the user declared.
        subject: whom the step is about.
        snapshots: answers by system; holds at least what `questions` asked for.
        generated: values made by the engine.
    """

    inventory: Inventory
    subject: Subject
    snapshots: Mapping[str, Snapshot]
    generated: Generated

    def seen(self, system: str) -> Snapshot:
        """Return the answers of a system; an empty snapshot when it was not asked."""
        return self.snapshots.get(system, Snapshot(system))


def told(answer: T | Unknown, what: str, subject: str, source: Source | None = None) -> T:
    """Return an answer that a role cannot do without.

    Args:
        answer: what a system said, or why it said nothing.
        what: what cannot be done then, as the user reads it.
        subject: whose step it is.
        source: inventory line.

    Raises:
        Permanent: `UNKNOWN`: there is none.
    """
    if isinstance(answer, Unknown):
        raise Permanent(Diagnostic("UNKNOWN", f"{what}: {answer.reason}", subject, source=source))
    return answer


class Role(Protocol):
    """The members of a role module, as the engine uses them."""

    __name__: str
    NEEDS: tuple[str, ...]
    NEW_BOOT: bool

    def declared(self, inventory: Inventory, subject: Subject) -> bool:
        """Whether the subject declares anything for this role."""
        ...

    def questions(self, inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
        """Return the questions whose answers `resources` looks at, by system."""
        ...

    def resources(self, context: Context) -> tuple[Resource, ...]:
        """Return the desired states, `Absent` ones for alternatives not chosen."""
        ...
