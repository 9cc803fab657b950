"""Which nodes make up the cluster."""

from __future__ import annotations

from provision.contracts.role import Parent
from provision.inventory import Inventory, Subject


def parents(inventory: Inventory, subject: Subject) -> tuple[Parent, ...]:
    """Return whose steps come before those of the cluster: all servers, and at least one agent."""
    if subject.kind != "cluster":
        return ()
    return tuple(
        Parent(name, any_of="" if node.k3s == "server" else "agents")
        for name, node in inventory.nodes.items()
        if node.k3s
    )
