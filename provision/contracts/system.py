"""A system of the site and how it is reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from provision.connections.contracts import Endpoint
from provision.contracts.snapshot import Snapshot


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
