"""The token of a running cluster, and k3s that must not be there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import SecretStr

from provision.contracts.change import Change, Op
from provision.contracts.resource import AnswerId
from provision.contracts.snapshot import Snapshot
from provision.hosts.queries.file import FileText
from provision.hosts.resources.base import HEADER, HostResource, Operations
from provision.hosts.resources.service import UnitState
from provision.k3s import paths
from provision.k3s.operations import RemoveK3s, RotateToken
from provision.k3s.queries import JoinToken


@dataclass(frozen=True, slots=True)
class ClusterToken(HostResource):
    """The token by which the cluster's datastore is encrypted is the declared one.

    Where k3s has not started yet there is none: the first start takes the one in its file.

    Args:
        token: the token that the cluster must have.
    """

    kind: ClassVar[str] = "k3s-token"

    token: SecretStr = field(repr=False)

    def queries(self) -> tuple[Any, ...]:
        """Return the query: the token that the server has."""
        return (JoinToken(paths.FULL_TOKEN.path),)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return the token as another one."""
        present: SecretStr | None = snapshot[JoinToken(paths.FULL_TOKEN.path)]
        if present is None or present == self.token:
            return ()
        return (Change(Op.UPDATE, "token", present, self.token, secret=True),)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how the cluster gets it: in the datastore first, then in files."""
        present: SecretStr = snapshot[JoinToken(paths.FULL_TOKEN.path)]
        return [RotateToken(present, self.token)]

    def affects(self, _changes: Sequence[Change], /) -> frozenset[AnswerId]:
        """Return the token as others read it."""
        return frozenset({(self.system, paths.FULL_TOKEN), (self.system, paths.FULL_AGENT_TOKEN)})

    def _secrets(self) -> tuple[SecretStr, ...]:
        return (self.token,)


@dataclass(frozen=True, slots=True)
class K3sAbsent(HostResource):
    """A unit of ours that must not be there, with all that it made.

    Args:
        unit: `k3s.service` or `k3s-agent.service`.
    """

    kind: ClassVar[str] = "k3s-absent"

    unit: str

    def _key_name(self) -> str:
        return self.unit

    @property
    def file(self) -> FileText:
        """The unit's file: only one with our first line is ours."""
        return FileText(paths.unit_file(self.unit))

    def queries(self) -> tuple[Any, ...]:
        """Return the queries: the unit's file."""
        return (self.file, UnitState(self.unit))

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return it as what goes; a unit of somebody else is left alone."""
        content: bytes | None = snapshot[self.file]
        if content is None or not content.startswith(HEADER.encode()):
            return ()
        return (Change(Op.DELETE, "unit", snapshot[UnitState(self.unit)].active, None),)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how it is removed."""
        del snapshot
        return [RemoveK3s(self.unit)]
