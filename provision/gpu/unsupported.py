"""What an inventory may declare of GPUs and no role serves yet."""

from __future__ import annotations

from collections.abc import Iterator

from provision.contracts.support import CLUSTER, Unsupported
from provision.inventory import Inventory

OPERATOR = "gpu_operator"


def unsupported(inventory: Inventory) -> Iterator[Unsupported]:
    """Yield the operator and the toolkit."""
    gpu = inventory.gpu
    if gpu is not None and gpu.operator is not None:
        yield Unsupported(OPERATOR, "the GPU Operator", ("gpu", "operator"), (CLUSTER,), (OPERATOR,))
    elif gpu is not None and gpu.toolkit is not None:
        yield Unsupported(OPERATOR, "the container toolkit", ("gpu", "toolkit"), (CLUSTER,), (OPERATOR,))
