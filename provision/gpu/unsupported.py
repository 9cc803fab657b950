"""What an inventory may declare of GPUs and no role serves yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provision.contracts.support import CLUSTER, Unsupported
from provision.gpu.operator_values import mig_profiles
from provision.inventory import Inventory

OPERATOR = "gpu_operator"


def unsupported(inventory: Inventory) -> Iterator[Unsupported]:
    """Yield the toolkit of hosts where no operator uses it, DRA, and MIG."""
    gpu, profiles = inventory.gpu, mig_profiles(inventory)
    if gpu is not None and gpu.toolkit == "host" and gpu.operator is None:
        yield Unsupported("gpu_toolkit", "the container toolkit", ("gpu", "toolkit"), (CLUSTER,), (OPERATOR,))
    operator = gpu.operator if gpu is not None else None
    if operator is not None:
        chosen = operator.values.get("gpuCluster")
        is_in_values = isinstance(chosen, Mapping) and bool(chosen.get("deployCR"))
        if operator.allocation == "dra" or is_in_values:
            key = ("values", "gpuCluster") if is_in_values else ("allocation",)
            what = "DRA (GPUCluster), which excludes ClusterPolicy and the device plugin,"
            yield Unsupported("gpu_operator_dra", what, ("gpu", "operator", *key), (CLUSTER,), (OPERATOR,))
    for node in inventory.nodes.values():
        has_mig = node.gpu_cards is not None and bool(node.gpu_cards.mig)
        if gpu is not None and gpu.operator is not None and has_mig and node.name not in profiles:
            path = ("nodes", node.name, "gpu_cards")
            yield Unsupported(
                "gpu_mig",
                "MIG under the GPU Operator without gpu.operator.mig.profiles",
                path,
                (node.name,),
                (OPERATOR,),
            )
