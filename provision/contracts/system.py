"""A system of the site and how it is reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from provision.connections.contracts import Endpoint
from provision.contracts.snapshot import Snapshot
from provision.inventory.tree import KeyPath

InventoryValue = tuple[KeyPath, Any]
"""A value of the inventory and where it stands: its secrets and files on the controller must be readable."""


@dataclass(frozen=True, slots=True)
class NotThere:
    """A system that cannot be reached now, by what was seen elsewhere.

    Args:
        reason: as the user reads it (`node-1 does not exist yet`, `node-2 is off by hand`).
        late: it will be there later in this run; otherwise its steps are unreached.
        excused: being away is no fault (power: unmanaged and off): the exit code is not raised.
        absent: it is known not to exist, so it holds nothing; one that is off may.
    """

    reason: str
    late: bool = True
    excused: bool = False
    absent: bool = False


@dataclass(frozen=True, slots=True)
class Way:
    """One way to reach a system.

    Args:
        questions: what other systems must have answered before `endpoint` can tell, by system. The way is
            cut when one of these systems goes down, so a way through a node names that node's system.
        endpoint: from snapshots (by system) to an endpoint, or why there is none.
    """

    questions: Mapping[str, tuple[Any, ...]]
    endpoint: Callable[[Mapping[str, Snapshot]], Endpoint | NotThere]


@dataclass(frozen=True, slots=True)
class SystemSpec:
    """One system of the site and how its endpoint follows from what others answered.

    Args:
        name: as in `node-1/ssh`.
        kind: which driver speaks to it.
        subject: the inventory item it belongs to.
        questions: of the first way to reach it; see `Way`.
        endpoint: of the first way.
        guard: the host that keeps this system's lock while a run acts on it; empty for hosts, which lock
            themselves, and where the host's login is not root and may take no lock.
        credentials: tokens and keys that open it.
        alternatives: further ways, taken in turn where those before lead nowhere.
        proof: what is asked before and after a reboot of its subject, to prove that it answers; None where
            the reboot itself does that, or nobody depends on it.
    """

    name: str
    kind: str
    subject: str
    questions: Mapping[str, tuple[Any, ...]]
    endpoint: Callable[[Mapping[str, Snapshot]], Endpoint | NotThere]
    guard: str = ""
    credentials: tuple[InventoryValue, ...] = ()
    alternatives: tuple[Way, ...] = ()
    proof: Any = None

    @property
    def ways(self) -> tuple[Way, ...]:
        """All ways, in the order in which they are tried."""
        return (Way(self.questions, self.endpoint), *self.alternatives)
