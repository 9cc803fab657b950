"""Before a node of the cluster goes away its pods leave it; once it is back it takes pods again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provision.contracts.effect import EffectClass
from provision.contracts.hook import Hook, Readiness
from provision.contracts.resource import Resource
from provision.contracts.role import Context
from provision.inventory import Inventory, Subject
from provision.inventory.models.node import Node
from provision.kube import local_volumes
from provision.kube.facts import NODES, NodeFact, find_node, node_fact
from provision.kube.kube_effects import DRAIN
from provision.kube.names import API, CORDONED, has_cluster, is_member
from provision.kube.queries import Listing
from provision.kube.resources.drain import NodeDrained, NodeUsable

QUORATE = 3
"""Fewer servers have no quorum to lose: the one that there is goes away with the API."""
ENDS_PODS = frozenset({"gpu-pods-lose-device", "rejoin-k3s"})
"""Effect classes, of later domains, by which running pods end or lose what they work with."""


def hooks(inventory: Inventory) -> tuple[Hook, ...]:
    """Return the drain, where there is a cluster, and what guards volumes, where VMs are its nodes."""
    return (_DRAIN_HOOK, *local_volumes.hooks(inventory)) if has_cluster(inventory) else ()


def _members(inventory: Inventory) -> list[Node]:
    return [node for node in inventory.nodes.values() if node.manage and is_member(inventory, node)]


def _affected(inventory: Inventory, subject: str, cls: EffectClass) -> Sequence[Subject]:
    """Return the nodes that go away: the subject, or those on a hypervisor."""
    goes_away = cls.reboots or cls.boots_target or cls.replaces_target or cls.name in ENDS_PODS
    if not goes_away:
        return ()
    return [
        Subject("node", node.name) for node in _members(inventory) if subject in {node.name, node.hypervisor}
    ]


def _facts(context: Context) -> tuple[NodeFact, ...]:
    listing: Listing = context.require(API, NODES, "cannot list the nodes of the cluster")
    return tuple(map(node_fact, listing.objects))


def _readiness(context: Context) -> Mapping[str, Readiness]:
    facts = _facts(context)
    readiness: dict[str, Readiness] = {}
    for node in _members(context.inventory):
        fact = find_node(facts, node)
        if fact is None:
            continue
        is_aside = fact.is_cordoned and CORDONED in fact.annotations
        readiness[node.name] = (
            Readiness.AWAY if not fact.is_ready else Readiness.SET_ASIDE if is_aside else Readiness.READY
        )
    return readiness


def _fact(context: Context) -> NodeFact | None:
    return find_node(_facts(context), context.inventory.nodes[context.subject.name])


def _before(context: Context) -> Sequence[Resource]:
    fact = _fact(context)
    return () if fact is None else (NodeDrained(API, fact.name, context.subject.name),)


def _undo(context: Context) -> Sequence[Resource]:
    fact = _fact(context)
    return () if fact is None else (NodeUsable(API, fact.name),)


def _after(context: Context) -> Sequence[Resource]:
    fact = _fact(context)
    return () if fact is None else (NodeUsable(API, fact.name, waits=True),)


def _works_without(inventory: Inventory, away: frozenset[str]) -> bool:
    """Whether more than half of the servers stay, where there are several."""
    servers = {node.name for node in inventory.nodes.values() if node.k3s == "server"}
    return len(servers) < QUORATE or len(servers - away) > len(servers) // 2


_DRAIN_HOOK = Hook(
    name="drain",
    affected=_affected,
    questions=lambda _inventory: {API: (NODES,)},
    readiness=_readiness,
    before=_before,
    undo=_undo,
    after=_after,
    limit=lambda inventory: inventory.cluster.max_unavailable,
    works_without=_works_without,
    excess=DRAIN,
    risks=(DRAIN,),
)
