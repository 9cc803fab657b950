"""What an inventory may declare of k3s and no role serves yet."""

from __future__ import annotations

from collections.abc import Iterator

from provision.contracts.support import Unsupported
from provision.inventory import Inventory

STEPS = ("k3s_server", "k3s_agent")


def unsupported(inventory: Inventory) -> Iterator[Unsupported]:
    """Yield a container runtime, and what is said of nodes that are not in the cluster."""
    for name, node in inventory.nodes.items():
        path, runtime = ("nodes", name), node.container_runtime
        if runtime is not None and (runtime.manage or runtime.minimum):
            where = (*path, "container_runtime")
            yield Unsupported("container_runtime", "a container runtime", where, (name,), STEPS)
        if node.k3s is not None:
            continue
        if node.interfaces:
            what = "interfaces of a node that is not in the cluster"
            yield Unsupported("node_interfaces", what, (*path, "interfaces"), (name,), STEPS)
