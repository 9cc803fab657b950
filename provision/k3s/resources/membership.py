"""A node that has joined its cluster under another address than declared leaves it, and joins it again.

etcd knows its members by address, and a server with another one ends with `not a member of the etcd cluster`
(k3s-io/k3s#7190, rancher/rke2#5949); agents keep the addresses of servers in files of their own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.resource import AnswerId
from provision.contracts.snapshot import Snapshot
from provision.hosts.queries.file import FileStatus
from provision.hosts.resources.base import HostResource, Operations
from provision.hosts.resources.service import UnitState
from provision.k3s import paths
from provision.k3s.operations import LeaveCluster
from provision.k3s.queries import JoinToken

_ADDRESS = re.compile(r"(?m)^node-ip:[ \"']*(?:[0-9A-Fa-f:]+,)?([0-9]+(?:\.[0-9]+){3})\b")


def joined_address(config: bytes | None) -> str:
    """Return the IPv4 address that a configuration of k3s gives its node, empty where it gives none."""
    match = _ADDRESS.search(config.decode("utf-8", "replace")) if config is not None else None
    return match[1] if match is not None else ""


@dataclass(frozen=True, slots=True)
class K3sMembership(HostResource):
    """The node has not joined, or has joined under its declared address.

    Args:
        unit: `k3s.service` or `k3s-agent.service`.
        address: the declared one.
    """

    kind: ClassVar[str] = "k3s-membership"

    unit: str
    address: str

    def _key_name(self) -> str:
        return self.unit

    def queries(self) -> tuple[Any, ...]:
        """Return the queries: the configuration, whether it has joined, and the unit that is stopped."""
        return (paths.OWN_CONFIG, paths.PASSWORD, UnitState(self.unit))

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return the address under which it has joined, if it is another one."""
        password: FileStatus = snapshot[paths.PASSWORD]
        former = joined_address(snapshot[paths.OWN_CONFIG])
        if not password.exists or former in ("", self.address):
            return ()
        return (Change(Op.REPLACE, "member", former, self.address),)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how it leaves; the rest of its step lets it join."""
        del snapshot
        return [LeaveCluster(self.unit)]

    def affects(self, _changes: Sequence[Change], /) -> frozenset[AnswerId]:
        """Return what proves a membership, and on a server what it has of the cluster."""
        lost: list[Any] = [paths.PASSWORD]
        if self.unit == paths.SERVER:
            lost += [paths.FULL_TOKEN, paths.FULL_AGENT_TOKEN, paths.ADMIN, paths.DATASTORE]
            lost.append(JoinToken(paths.FULL_TOKEN.path))
        return frozenset((self.system, query) for query in lost)
