"""HAMi: what its chart is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.gpu.operator_values import RESOURCE, gpu_nodes
from provision.inventory import Inventory
from provision.kube.resources.node import parse_taint
from provision.kube.values import laid_over
from provision.sharing.names import HAMI_LABEL

SLOTS = 10
"""As how many HAMi offers a card where nothing is declared."""


def slots(inventory: Inventory) -> int:
    """Return as how many a card is offered."""
    sharing = inventory.sharing
    return (sharing.slots_per_card if sharing is not None else None) or SLOTS


def hami_values(inventory: Inventory, version: str) -> Mapping[str, Any]:
    """Return the values of the chart.

    Its services would be open on every node (NodePort), and its scheduler comes from a regional mirror.

    Args:
        inventory: what was declared.
        version: of the cluster; the scheduler is of the same one.
    """
    sharing, gpu = inventory.sharing, inventory.gpu
    tolerations = [{"key": RESOURCE, "operator": "Exists", "effect": "NoSchedule"}]
    for node in gpu_nodes(inventory):
        for taint in map(parse_taint, node.taints):
            row = {"key": taint.key, "operator": "Exists", "effect": taint.effect}
            tolerations += [row] if row not in tolerations else []
    image = {
        "registry": "registry.k8s.io",
        "repository": "kube-scheduler",
        "tag": version.partition("+")[0],
    }
    values: dict[str, Any] = {
        "scheduler": {
            "kubeScheduler": {"image": image},
            "service": {"type": "ClusterIP"},
        },
        "devicePlugin": {
            "deviceSplitCount": slots(inventory),
            "runtimeClassName": "nvidia",  # of k3s, which is not the default there
            "createRuntimeClass": False,
            "nvidiaNodeSelector": dict([HAMI_LABEL]),
            "gpuOperatorToolkitReady": {"enabled": gpu is not None and gpu.toolkit == "operator"},
            "service": {"type": "ClusterIP"},
            "tolerations": tolerations,
        },
    }
    return laid_over(values, sharing.values if sharing is not None else {})
