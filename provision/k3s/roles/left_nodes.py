"""Node objects of machines that have left the inventory, found by the annotation that we put on our nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provision.contracts.resource import Resource
from provision.contracts.role import Context, Questions
from provision.inventory import Inventory, Subject
from provision.k3s import configuration
from provision.k3s.resources.node import LeftNode
from provision.kube.facts import NODES, find_node, node_fact
from provision.kube.names import API, OWNER, SUBJECT, is_member
from provision.kube.queries import Listing


def owners(inventory: Inventory) -> Mapping[Subject, Questions]:
    """Ask our own cluster for its nodes; those of an existing cluster were never made by us."""
    own = inventory.k3s is not None and inventory.cluster.kubeconfig is None
    if not own or not configuration.servers(inventory):
        return {}
    return {Subject("cluster", SUBJECT): {API: (NODES,)}}


def orphans(context: Context) -> Sequence[Resource]:
    """Return Nodes with this inventory's annotation that belong to no declared machine.

    Raises:
        NotYet: the API does not list its nodes.
    """
    if API not in context.snapshots:
        return ()  # the engine tells who is silent
    inventory = context.inventory
    listing: Listing = context.require(API, NODES, "cannot list the nodes of the cluster")
    facts = tuple(map(node_fact, listing.objects))
    # A node that is not managed is never touched, whatever it says of itself.
    kept = [node for node in inventory.nodes.values() if not node.manage or is_member(inventory, node)]
    known = {fact.name for node in kept if (fact := find_node(facts, node)) is not None}
    known |= {node.kubernetes_name for node in kept}
    return [
        LeftNode(API, fact.name)
        for fact in facts
        if fact.annotations.get(OWNER) == inventory.name and fact.name not in known
    ]
