"""The unit of k3s: it starts at boot, and is up within our own deadline."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from provision.contracts.change import Change, Op, Settles
from provision.contracts.resource import AnswerId
from provision.contracts.snapshot import Snapshot
from provision.hosts.operations import basic as ops
from provision.hosts.resources.base import HostResource, Operations
from provision.hosts.resources.service import UnitState, UnitStatus
from provision.k3s import paths
from provision.k3s.join_network import ProveServer
from provision.k3s.k3s_effects import SECONDS
from provision.k3s.queries import JoinToken, LastWords, ServiceLog

FATAL = re.compile(
    r"CA hash does not match|Node password rejected|certificate has expired or is not yet valid"
    r"|is not a member of the etcd cluster|is a not a member of the etcd cluster|too many learner"
    r"|failed to normalize token|bootstrap data already found and encrypted with different token"
    r"|critical configuration value mismatch|unable to select an IP|Node \"[^\"]*\" is invalid"
    r"|not authorized|incompatible, use 'nft' tool",
    re.IGNORECASE,
)
"""Words of k3s after which waiting does not help."""


@dataclass(frozen=True, slots=True)
class K3sUnit(HostResource):
    """A server or an agent that runs.

    Its unit says `Type=notify`: it is active once the API answers, or the agent has joined. A start only
    queues the job, because systemd itself would wait for it without end.

    Args:
        unit: `k3s.service` or `k3s-agent.service`.
        joins: the server that it joins, as messages name it; empty for the one that makes the cluster.
        deadline: seconds until it must be up.
        proof: what must hold before it starts to join; None for the one that makes the cluster.
    """

    kind: ClassVar[str] = "k3s-unit"

    unit: str
    joins: str = ""
    deadline: float = SECONDS
    proof: ProveServer | None = None

    def _key_name(self) -> str:
        return self.unit

    def queries(self) -> tuple[Any, ...]:
        """Return the queries: its state, and its last words where it is not up."""
        return (UnitState(self.unit), ServiceLog(self.unit))

    def creation(self) -> tuple[Change, ...]:
        """Return it as missing."""
        return (Change(Op.CREATE, "unit", None, self._desired, Settles.WITHIN, self.deadline),)

    @property
    def _desired(self) -> str:
        return f"active, joined to {self.joins}" if self.joins else "active"

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return what differs; an unit that cannot come up by waiting differs at once."""
        status: UnitStatus = snapshot[UnitState(self.unit)]
        if not status.exists:
            return self.creation()
        changes: list[Change] = []
        if not status.enabled:
            changes.append(Change(Op.UPDATE, "enabled", status.file or "disabled", "enabled"))
        if status.active != "active":
            log: LastWords = snapshot[ServiceLog(self.unit)]
            fatal = next((line for line in log.lines if FATAL.search(line)), "")
            words = fatal or next(iter(reversed(log.lines)), "")
            is_state = f"{status.active} ({status.sub})"
            old = f"{is_state}: {words}" if words else is_state
            settles = Settles.NOW if fatal else Settles.WITHIN
            changes.append(Change(Op.UPDATE, "running", old, self._desired, settles, self.deadline))
        return tuple(changes)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how it is enabled, and started unless it is starting."""
        status: UnitStatus = snapshot[UnitState(self.unit)]
        operations: list[ops.Operation] = []
        if status.file.startswith("masked"):
            operations.append(ops.SetUnit(self.unit, "unmask"))
        if not status.enabled:
            operations.append(ops.SetUnit(self.unit, "enable"))
        if not status.exists or status.stopped:
            if self.proof is not None:
                operations.append(self.proof)
            operations.append(ops.SetUnit(self.unit, "start", waits=False))
        return operations

    def _seconds(self) -> float:
        return 300.0 + (self.proof.seconds if self.proof is not None else 0)

    def affects(self, changes: Sequence[Change], /) -> frozenset[AnswerId]:
        """Return what a server makes when it starts: the full token with its CA, and the admin's access."""
        if all(change.path == "enabled" for change in changes):
            return frozenset()
        if self.unit != paths.SERVER:
            return frozenset({(self.system, paths.PASSWORD)})
        made = (
            paths.PASSWORD,
            paths.FULL_TOKEN,
            paths.FULL_AGENT_TOKEN,
            paths.ADMIN,
            JoinToken(paths.FULL_TOKEN.path),
            paths.DATASTORE,
        )
        return frozenset((self.system, query) for query in made)
