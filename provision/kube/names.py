"""Names of the cluster's system, and the labels by which our objects are known."""

from __future__ import annotations

from provision.inventory import Inventory
from provision.inventory.models.node import Node

API = "cluster/api"
"""The cluster's API, however it is reached."""
SUBJECT = "cluster"
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "provision"
ROLE = "provision/role"
"""Label with the role that declared an object: what it declares no more is found by it."""
TAINTS = "provision/taints"
"""Annotation of a Node with the taints that we set."""
OWNER = "provision/inventory"
"""Annotation of a Node whose machine we made one of the cluster: the name of the inventory."""
CORDONED = "provision/cordoned"
"""Annotation of a Node that we cordoned, with the run that did it."""
PRIVILEGED = {"pod-security.kubernetes.io/enforce": "privileged"}
"""Labels of a namespace whose pods may do what those of drivers do (Kubernetes, Pod Security Admission)."""


def has_cluster(inventory: Inventory) -> bool:
    """Whether there is a cluster to speak to: an existing one, or one of our own nodes."""
    own = inventory.k3s is not None and any(node.k3s for node in inventory.nodes.values())
    return own or inventory.cluster.kubeconfig is not None


def is_member(inventory: Inventory, node: Node) -> bool:
    """Whether a node is declared as one of the cluster's.

    Nodes of an existing cluster are not installed: what is said of their Node object makes them members.
    """
    if inventory.cluster.kubeconfig is None:
        return inventory.k3s is not None and node.k3s is not None
    return bool(node.labels or node.annotations or node.taints or node.kube_name)


def labels_of(role: str) -> dict[str, str]:
    """Return the labels of the objects of a role."""
    return {MANAGED_BY: MANAGER, ROLE: role}


def selector_of(role: str) -> str:
    """Return the label selector that finds the objects of a role."""
    return ",".join(f"{key}={value}" for key, value in labels_of(role).items())
