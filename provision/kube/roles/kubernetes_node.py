"""Labels, annotations and taints of the cluster's nodes, through the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.contracts.resource import Resource
from provision.contracts.role import Context, Need, NotYet, Role
from provision.inventory import Inventory, Subject
from provision.kube.facts import NODES, find_node, node_fact
from provision.kube.names import API, is_member
from provision.kube.queries import Listing
from provision.kube.resources.drain import NodeUsable
from provision.kube.resources.node import NodeSettings, parse_taint
from provision.values.diagnostics import Diagnostic


def declared(inventory: Inventory, subject: Subject) -> bool:
    """Whether the node is one of the cluster's."""
    node = inventory.nodes.get(subject.name) if subject.kind == "node" else None
    return node is not None and node.manage and is_member(inventory, node)


def questions(inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
    """Ask for all nodes: one list serves all steps."""
    del inventory, subject
    return {API: (NODES,)}


def resources(context: Context) -> tuple[Resource, ...]:
    """Return what is declared of the Node object.

    Raises:
        NotYet: an existing cluster does not have the node.
    """
    inventory = context.inventory
    node = inventory.nodes[context.subject.name]
    listing: Listing = context.require(API, NODES, "cannot list the nodes of the cluster")
    fact = find_node(tuple(map(node_fact, listing.objects)), node)
    source = inventory.source(("nodes", node.name))
    own = inventory.cluster.kubeconfig is None
    if fact is None and not own:
        summary = f"the cluster has no node {node.kubernetes_name}, and none at {node.address}"
        remedy = "See `kubectl get nodes`; name its Node with nodes.*.kube_name."
        problem = Diagnostic("NODE_NOT_IN_CLUSTER", summary, node.name, source=source, remedy=remedy)
        raise NotYet(API, NODES, problem)
    name = fact.name if fact is not None else node.kubernetes_name
    return (
        NodeUsable(API, name, source=source),  # what a run that was killed has cordoned
        NodeSettings(
            API,
            name,
            tuple(sorted(node.labels.items())),
            tuple(sorted(node.annotations.items())),
            tuple(map(parse_taint, node.taints)),
            inventory.name if own else "",
            joins=own,
            source=source,
        ),
    )


ROLE = Role(
    name="kubernetes_node",
    needs=(Need("k3s_server", "any", "site"), Need("k3s_agent")),
    declared=declared,
    questions=questions,
    resources=resources,
)
