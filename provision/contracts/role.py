"""What a role is, and what it may look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


Questions = Mapping[str, tuple[Any, ...]]
"""Queries by system."""


@dataclass(frozen=True, slots=True)
class Role:
    """What knows one part of a domain: pure functions from inventory and answers to desired states.

    Args:
        name: as playbooks call it.
        declared: whether a subject declares anything for this role; without it there is no step.
        questions: the answers that `resources` and `retired` read.
        resources: desired states in the order in which they are brought about, absent ones among them.
        needs: roles whose failure for the same subject (or one that it needs) blocks this one.
        needs_all: roles whose failure for any subject blocks this one.
        needs_new_boot: its answers are true only after the pending reboots of its systems.
        retired: what destroy removes, as absent.
        orphan_owners: subjects that may hold what left the inventory, and what to ask them for it.
        orphans: what left the inventory, as absent; `context.subject` is an owner. It is called again once
            what it named was asked, and raises where a system that answers does not list what it has.
    """

    name: str
    declared: Callable[[Inventory, Subject], bool]
    questions: Callable[[Inventory, Subject], Questions]
    resources: Callable[[Context], Sequence[Resource]]
    needs: tuple[str, ...] = ()
    needs_all: tuple[str, ...] = ()
    needs_new_boot: bool = False
    retired: Callable[[Context], Sequence[Resource]] | None = None
    orphan_owners: Callable[[Inventory], Mapping[Subject, Questions]] | None = None
    orphans: Callable[[Context], Sequence[Resource]] | None = None
