"""What an inventory may declare of the cluster's nodes and no role serves yet."""

from __future__ import annotations

from collections.abc import Iterator

from provision.contracts.support import CLUSTER, Unsupported
from provision.inventory import Inventory

CLUSTER_STEPS = ("k3s_server", "k3s_agent")


def unsupported(inventory: Inventory) -> Iterator[Unsupported]:
    """Yield how many nodes may be unavailable."""
    if inventory.cluster.max_unavailable != 1:
        path = ("cluster", "max_unavailable")
        yield Unsupported("max_unavailable", "draining of nodes", path, (CLUSTER,), CLUSTER_STEPS)
