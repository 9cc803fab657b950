"""What the cluster still knows of a machine that is not there any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.remedy import ApiCall
from provision.contracts.resource import KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.kube.kinds import NODE, SECRET, object_path
from provision.kube.queries import Live, ObjectQuery
from provision.kube.resources.object import deletion

SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class EarlierNode(KeyedResource):
    """The Node object of a name belongs to the machine that has the name now, or there is none.

    Args:
        name: of the Node.
        machine_id: of the machine, as machine-id(5) and the Node's status have it.
    """

    kind: ClassVar[str] = "k3s-earlier-node"

    name: str
    machine_id: str

    def _key_name(self) -> str:
        return self.name

    @property
    def _query(self) -> ObjectQuery:
        return ObjectQuery(NODE.api, NODE.plural, "", self.name)

    def queries(self) -> tuple[ObjectQuery, ...]:
        """Ask for the Node."""
        return (self._query,)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return the Node of another machine; one that says nothing of its machine is left alone."""
        live: Live | None = snapshot[self._query]
        former = str(live.at("status", "nodeInfo", "machineID") or "") if live is not None else ""
        if not former or former == self.machine_id:
            return ()
        return (Change(Op.DELETE, "node", f"machine {former}", None),)

    def fix(self, snapshot: Snapshot, /) -> ApiCall:
        """Delete the password that the machine does not have, then the Node, and etcd's member with it."""
        del snapshot
        secret = object_path(SECRET.api, SECRET.plural, "kube-system", f"{self.name}.node-password.k3s")
        node = object_path(NODE.api, NODE.plural, "", self.name)
        return ApiCall((deletion(secret, SECONDS), deletion(node, SECONDS)))
