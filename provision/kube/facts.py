"""What the cluster's answers mean: its nodes, and which of them is which machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from provision.contracts.query import Unknown
from provision.hosts.view import View
from provision.inventory.models.node import Node
from provision.kube.kinds import NODE
from provision.kube.queries import Listing, Live, ServerVersion, list_query
from provision.kube.readiness import State, readiness

NODES = list_query(NODE)
"""The question for all nodes."""


@dataclass(frozen=True, slots=True)
class Taint:
    """One taint of a node."""

    key: str
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class NodeFact:
    """One Node object, as far as we look at it.

    Args:
        name: of the Node.
        is_ready: condition Ready.
        is_cordoned: whether it takes no new pods.
        addresses: its InternalIPs.
        machine_id: `/etc/machine-id` of the machine.
        system_uuid: product UUID of the machine, in lower case.
        kubelet: version.
        labels: all of them.
        annotations: all of them.
        taints: in the order of the API.
        allocatable: amounts by resource.
        capacity: amounts by resource.
    """

    name: str
    is_ready: bool = False
    is_cordoned: bool = False
    addresses: tuple[str, ...] = ()
    machine_id: str = ""
    system_uuid: str = ""
    kubelet: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    allocatable: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)


def node_fact(live: Live) -> NodeFact:
    """Return a Node object by what it means."""
    addresses = live.at("status", "addresses")
    info = live.at("status", "nodeInfo")
    known = info if isinstance(info, Mapping) else {}
    return NodeFact(
        live.name,
        readiness({"kind": "Node", "status": live.at("status")}).state is State.READY,
        live.at("spec", "unschedulable") is True,
        tuple(
            str(row.get("address"))
            for row in (addresses if isinstance(addresses, list) else [])
            if isinstance(row, Mapping) and row.get("type") == "InternalIP"
        ),
        str(known.get("machineID") or ""),
        str(known.get("systemUUID") or "").lower(),
        str(known.get("kubeletVersion") or ""),
        live.labels,
        live.annotations,
        tuple(
            Taint(str(row.get("key")), str(row.get("value") or ""), str(row.get("effect") or ""))
            for row in live.at("spec", "taints") or ()
            if isinstance(row, Mapping)
        ),
        _amounts(live.at("status", "allocatable")),
        _amounts(live.at("status", "capacity")),
    )


def _amounts(value: object) -> dict[str, str]:
    return {str(key): str(amount) for key, amount in value.items()} if isinstance(value, Mapping) else {}


@dataclass(frozen=True, slots=True)
class ClusterView(View):
    """The cluster's answers by what they mean."""

    @property
    def version(self) -> str | Unknown:
        """Version of the API server."""
        return self.answer_as(ServerVersion(), str)

    @property
    def nodes(self) -> tuple[NodeFact, ...] | Unknown:
        """All nodes."""
        listing = self.answer_as(NODES, Listing)
        return listing if isinstance(listing, Unknown) else tuple(map(node_fact, listing.objects))


def find_node(
    nodes: tuple[NodeFact, ...], node: Node, machine_id: str = "", system_uuid: str = ""
) -> NodeFact | None:
    """Return the Node object of a machine.

    It has the machine's own identity where that is known; else its declared name, else its address: an
    adopted node may be called anything.

    Args:
        nodes: all Node objects.
        node: as declared.
        machine_id: what the machine says of itself, or empty.
        system_uuid: likewise.
    """
    for known, of in ((machine_id, "machine_id"), (system_uuid.lower(), "system_uuid")):
        matches = [fact for fact in nodes if known and getattr(fact, of) == known]
        if len(matches) == 1:
            return matches[0]
    by_name = next((fact for fact in nodes if fact.name == node.kubernetes_name), None)
    if by_name is not None or node.kube_name:
        return by_name
    by_address = [fact for fact in nodes if node.address in fact.addresses]
    return by_address[0] if len(by_address) == 1 else None
