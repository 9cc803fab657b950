"""What an inventory may declare of GPUs and no role serves yet."""

from __future__ import annotations

from collections.abc import Iterator

from provision.contracts.support import CLUSTER, Unsupported
from provision.inventory import Inventory

OPERATOR = "gpu_operator"


def unsupported(inventory: Inventory) -> Iterator[Unsupported]:
    """Yield the toolkit of hosts where no operator uses it, and MIG."""
    gpu = inventory.gpu
    if gpu is not None and gpu.toolkit == "host" and gpu.operator is None:
        yield Unsupported("gpu_toolkit", "the container toolkit", ("gpu", "toolkit"), (CLUSTER,), (OPERATOR,))
    for node in inventory.nodes.values():
        if gpu is not None and gpu.operator is not None and node.gpu_cards is not None and node.gpu_cards.mig:
            path = ("nodes", node.name, "gpu_cards")
            yield Unsupported("gpu_mig", "MIG under the GPU Operator", path, (node.name,), (OPERATOR,))
