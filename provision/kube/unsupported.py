"""What an inventory may declare of the cluster's nodes and storage and no role serves yet."""

from __future__ import annotations

from collections.abc import Iterator

from provision.contracts.support import CLUSTER, Unsupported
from provision.inventory import Inventory

STEPS = ("shared_storage",)
CLUSTER_STEPS = ("k3s_server", "k3s_agent")


def unsupported(inventory: Inventory) -> Iterator[Unsupported]:
    """Yield shared storage, and how many nodes may be unavailable."""
    if inventory.cluster.max_unavailable != 1:
        path = ("cluster", "max_unavailable")
        yield Unsupported("max_unavailable", "draining of nodes", path, (CLUSTER,), CLUSTER_STEPS)
    for name, storage in inventory.storage.items():
        path = ("storage", name)
        if storage.manage:
            yield Unsupported("shared_storage", "managed shared storage", path, (CLUSTER,), STEPS)
        elif storage.same_on_all is not None or storage.free is not None:
            yield Unsupported("shared_storage", "what shared storage must be", path, (CLUSTER,), STEPS)
