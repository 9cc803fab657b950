"""What an inventory may declare of GPU sharing and no role serves yet."""

from __future__ import annotations

from collections.abc import Iterator

from provision.contracts.support import CLUSTER, Unsupported
from provision.inventory import Inventory

FRACTIONS, STEP = "kai_fractions", "gpu_sharing"


def unsupported(inventory: Inventory) -> Iterator[Unsupported]:
    """Yield KAI's GPU fractions over MPS."""
    sharing = inventory.sharing
    if sharing is not None and sharing.mode == FRACTIONS:
        yield Unsupported(FRACTIONS, "sharing mode kai_fractions", ("sharing", "mode"), (CLUSTER,), (STEP,))
