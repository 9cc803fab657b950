"""What an inventory may declare of the cluster's storage and no role serves yet."""

from __future__ import annotations

from collections.abc import Iterator

from provision.contracts.support import CLUSTER, Unsupported
from provision.inventory import Inventory

STEPS = ("shared_storage",)


def unsupported(inventory: Inventory) -> Iterator[Unsupported]:
    """Yield shared storage."""
    for name, storage in inventory.storage.items():
        path = ("storage", name)
        if storage.manage:
            yield Unsupported("shared_storage", "managed shared storage", path, (CLUSTER,), STEPS)
        elif storage.same_on_all is not None or storage.free is not None:
            yield Unsupported("shared_storage", "what shared storage must be", path, (CLUSTER,), STEPS)
