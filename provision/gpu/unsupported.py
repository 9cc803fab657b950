"""What an inventory may declare of GPUs and no role serves yet."""

from __future__ import annotations

from collections.abc import Iterator

from provision.contracts.support import CLUSTER, Unsupported
from provision.inventory import Inventory
from provision.inventory.models.node import Node

DRIVER, OPERATOR = "gpu_driver", "gpu_operator"


def unsupported(inventory: Inventory) -> Iterator[Unsupported]:
    """Yield drivers, the operator, and what cards must show."""
    for node in inventory.nodes.values():
        yield from _of_node(node)
    gpu = inventory.gpu
    if gpu is not None and gpu.operator is not None:
        yield Unsupported(OPERATOR, "the GPU Operator", ("gpu", "operator"), (CLUSTER,), (OPERATOR,))
    elif gpu is not None and gpu.toolkit is not None:
        yield Unsupported(OPERATOR, "the container toolkit", ("gpu", "toolkit"), (CLUSTER,), (OPERATOR,))
    for alias in inventory.expect.gpu_cards:
        for node in inventory.nodes.values():
            if alias in node.gpus:
                path = ("expect", "gpu_cards", alias)
                yield Unsupported(DRIVER, "what GPU cards must show", path, (node.name,), (DRIVER,))


def _of_node(node: Node) -> Iterator[Unsupported]:
    """Yield drivers that are ours, and what is wanted of those that are not."""
    path, driver, subjects, steps = ("nodes", node.name), node.driver, (node.name,), (DRIVER,)
    if driver is not None and driver.manage:
        yield Unsupported(DRIVER, "a managed GPU driver", (*path, "driver"), subjects, steps)
    elif driver is not None and (driver.minimum or driver.fabric_manager not in (None, "unmanaged")):
        yield Unsupported(DRIVER, "what the GPU driver must be", (*path, "driver"), subjects, steps)
    if node.gpu_cards is not None:
        yield Unsupported(DRIVER, "what GPU cards must show", (*path, "gpu_cards"), subjects, steps)
