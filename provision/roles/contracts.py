"""What a role is, and what it may look at.

A role is a module in this package, found by its name, with these members:

    NEEDS: tuple[str | Need, ...] roles whose steps must have ended well; a name is `Need(name)`
    UNREACHED_STOPS: bool         with `stop_on_failure`, an unreached subject counts as failed (optional)
    NEW_BOOT: bool                whether its facts are only true after pending reboots of its systems
    def declared(inventory, subject) -> bool           nothing declared: no step
    def questions(inventory, subject) -> Mapping[str, tuple[Query, ...]]      facts it needs, by system
    def resources(context) -> tuple[Resource, ...]     in the order in which they are brought about
    def retired(context) -> tuple[Resource, ...]       as absent, what destroy removes (optional)
    def keepers(inventory) -> Mapping[Subject, Mapping[str, tuple[Query, ...]]]
        who may hold things that left the inventory, and what to ask for them (optional, with `orphans`)
    def orphans(context) -> tuple[Resource, ...]
        what left the inventory, as absent; `context.subject` is a keeper. Called again once what it
        named was asked; raises where a system that answers does not tell what it has (`told`)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from provision.connections.contracts import Endpoint, KeyPair
from provision.inventory import Inventory, Subject
from provision.resources.contracts import Resource, Snapshot, Unknown
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


@dataclass(frozen=True, slots=True)
class Need:
    """Steps of another role that must have ended before a step begins, and how many of them well.

    A number larger than the steps of this run (`--target`) means all of them; no steps are no need.

    Args:
        role: name of the other role.
        count: how many must have ended well; with fewer, the step is blocked.
        scope: `near` is the step's subject and its parents, `site` is every subject.
    """

    role: str
    count: Literal["all", "any"] | int = "all"
    scope: Literal["near", "site"] = "near"

    def least(self, available: int) -> int:
        """Return how many of the available steps must have ended well."""
        wished = {"all": available, "any": 1}.get(str(self.count))
        return min(available, int(self.count) if wished is None else wished)


class Role(Protocol):
    """The members of a role module, as the engine uses them."""

    __name__: str
    NEEDS: tuple[str | Need, ...]
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


@dataclass(frozen=True, slots=True)
class NotThere:
    """A system that cannot be reached now, by what was seen elsewhere.

    Args:
        reason: as the user reads it (`vm-1 does not exist yet`, `vm-gpu is off by hand`).
        late: it will be there later in this run; otherwise its steps are unreached.
        excused: being away is no fault (power: unmanaged and off): the exit code is not raised.
    """

    reason: str
    late: bool = True
    excused: bool = False


@dataclass(frozen=True, slots=True)
class SystemSpec:
    """One system of the site and how its endpoint follows from what others answered.

    Args:
        name: `pve/ssh`, `pve/api`, `router`, `vm-1/ssh`.
        kind: `host` or `proxmox` (later `kube`).
        subject: the inventory item it belongs to.
        questions: what other systems must have answered before `endpoint` can tell, by system.
        endpoint: from snapshots (by system) to an endpoint, or why there is none.
        guard: the host that keeps this system's lock while a run acts on it; empty for hosts, which lock
            themselves, and where the host's login is not root and may take no lock.
    """

    name: str
    kind: str
    subject: str
    questions: Mapping[str, tuple[Any, ...]]
    endpoint: Callable[[Mapping[str, Snapshot]], Endpoint | NotThere]
    guard: str = ""
