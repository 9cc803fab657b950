"""What an inventory may declare of GPU sharing and no role serves yet."""

from __future__ import annotations

from collections.abc import Iterator

from provision.contracts.support import CLUSTER, Unsupported
from provision.inventory import Inventory

ROLE = "gpu_sharing"


def unsupported(inventory: Inventory) -> Iterator[Unsupported]:
    """Yield the mode of sharing."""
    sharing = inventory.sharing
    if sharing is not None and sharing.mode != "none":
        yield Unsupported(ROLE, "GPU sharing", ("sharing", "mode"), (CLUSTER,), (ROLE,))
