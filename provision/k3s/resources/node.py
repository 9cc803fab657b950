"""What the cluster still knows of a machine that is not there any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.remedy import ApiCall, Request
from provision.contracts.resource import KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.kube.actions import AWAIT_SILENCE
from provision.kube.facts import NODES, node_fact
from provision.kube.kinds import NODE, SECRET, object_path
from provision.kube.queries import Listing, ListQuery, Live, ObjectQuery
from provision.kube.resources.object import deletion

SECONDS = 120.0
SILENT_SECONDS = 180.0
"""A VM that is removed in the same run ends first, and the cluster notices it after 40 to 50 s."""


@dataclass(frozen=True, slots=True)
class EarlierNode(KeyedResource):
    """The Node object of a name belongs to the machine and address that have the name now, or there is none.

    Args:
        name: of the Node.
        machine_id: of the machine, as machine-id(5) and the Node's status have it; empty where it has none.
        address: under which it joins.
    """

    kind: ClassVar[str] = "k3s-earlier-node"

    name: str
    machine_id: str
    address: str = ""

    def _key_name(self) -> str:
        return self.name

    @property
    def _query(self) -> ObjectQuery:
        return ObjectQuery(NODE.api, NODE.plural, "", self.name)

    def queries(self) -> tuple[ObjectQuery, ...]:
        """Ask for the Node."""
        return (self._query,)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return the Node of another machine or address; one that says nothing of them is left alone."""
        live: Live | None = snapshot[self._query]
        if live is None:
            return ()
        fact = node_fact(live)
        if self.machine_id and fact.machine_id not in ("", self.machine_id):
            return (Change(Op.DELETE, "node", f"machine {fact.machine_id}", None),)
        if self.address and fact.addresses and self.address not in fact.addresses:
            return (Change(Op.DELETE, "node", f"address {', '.join(fact.addresses)}", None),)
        return ()

    def fix(self, snapshot: Snapshot, /) -> ApiCall:
        """Delete the password that the machine does not have, then the Node, and etcd's member with it."""
        del snapshot
        return ApiCall(_deletions(self.name))


@dataclass(frozen=True, slots=True)
class LeftNode(KeyedResource):
    """The Node object of a machine that the inventory does not declare any more is not there.

    Args:
        name: of the Node.
        seconds: how long the cluster may take to see that the machine is silent.
    """

    kind: ClassVar[str] = "k3s-left-node"

    name: str
    seconds: float = SILENT_SECONDS

    def _key_name(self) -> str:
        return self.name

    def queries(self) -> tuple[ListQuery, ...]:
        """Ask for all nodes, as all others do."""
        return (NODES,)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Say whether its machine still reports."""
        listing: Listing = snapshot[NODES]
        live = listing.named(self.name)
        if live is None:
            return ()
        return (Change(Op.DELETE, "node", "Ready" if node_fact(live).is_ready else "not Ready", None),)

    def fix(self, snapshot: Snapshot, /) -> ApiCall:
        """Wait until the machine is silent, then delete its password and the Node."""
        del snapshot
        path = object_path(NODE.api, NODE.plural, "", self.name)
        return ApiCall((Request(AWAIT_SILENCE, path, task=self.seconds), *_deletions(self.name)))


def _deletions(name: str) -> tuple[Request, ...]:
    """Return the requests that delete a Node after the password that its machine proved itself with."""
    secret = object_path(SECRET.api, SECRET.plural, "kube-system", f"{name}.node-password.k3s")
    return (
        deletion(secret, SECONDS),
        deletion(object_path(NODE.api, NODE.plural, "", name), SECONDS),
    )
