"""What an inventory may declare of GPU sharing and no role serves yet."""

from __future__ import annotations

from collections.abc import Iterator

from provision.contracts.support import CLUSTER, Unsupported
from provision.inventory import Inventory

STEP = "gpu_sharing"


def unsupported(inventory: Inventory) -> Iterator[Unsupported]:
    """Yield images that are pushed to the nodes."""
    sharing = inventory.sharing
    if sharing is not None and sharing.images == "import":
        what = "images of GPU fractions that are pushed to the nodes"
        yield Unsupported("fraction_images", what, ("sharing", "images"), (CLUSTER,), (STEP,))
