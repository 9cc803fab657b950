"""A server restarts only while enough of the others are up: etcd works with more than half of its members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provision.contracts.effect import EffectClass
from provision.contracts.hook import Hook, Readiness
from provision.contracts.role import Context
from provision.inventory import Inventory, Subject
from provision.k3s import configuration
from provision.k3s.k3s_effects import REJOIN_K3S, RESTART_K3S
from provision.kube.facts import NODES, find_node, node_fact
from provision.kube.kube_effects import DRAIN
from provision.kube.names import API
from provision.kube.queries import Listing

QUORATE = 3
"""Fewer servers have no quorum to lose."""


def hooks(inventory: Inventory) -> tuple[Hook, ...]:
    """Return the hook, where the cluster is ours and has several servers."""
    own = inventory.k3s is not None and inventory.cluster.kubeconfig is None
    return (_QUORUM,) if own and len(configuration.servers(inventory)) >= QUORATE else ()


def _affected(inventory: Inventory, subject: str, cls: EffectClass) -> Sequence[Subject]:
    """Return the server that restarts, or leaves for a while."""
    names = {server.name for server in configuration.servers(inventory) if server.manage}
    return [Subject("node", subject)] if cls in (RESTART_K3S, REJOIN_K3S) and subject in names else []


def _readiness(context: Context) -> Mapping[str, Readiness]:
    listing: Listing = context.require(API, NODES, "cannot list the nodes of the cluster")
    facts = tuple(map(node_fact, listing.objects))
    readiness: dict[str, Readiness] = {}
    for server in configuration.servers(context.inventory):
        fact = find_node(facts, server)
        if fact is not None:
            readiness[server.name] = Readiness.READY if fact.is_ready else Readiness.AWAY
    return readiness


def _works_without(inventory: Inventory, away: frozenset[str]) -> bool:
    servers = {server.name for server in configuration.servers(inventory)}
    return len(servers - away) > len(servers) // 2


_QUORUM = Hook(
    name="quorum",
    affected=_affected,
    questions=lambda _inventory: {API: (NODES,)},
    readiness=_readiness,
    before=lambda _context: (),
    undo=lambda _context: (),
    after=lambda _context: (),
    limit=lambda inventory: len(configuration.servers(inventory)),
    works_without=_works_without,
    excess=DRAIN,
    # A cluster whose API is silent has no quorum to lose, and the restart may be what brings it back.
    needs_answer=False,
)
