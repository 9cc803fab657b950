"""Values of the GPU Operator's chart: a pure function of what the inventory declares."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from provision.inventory import Inventory
from provision.inventory.models.node import Node
from provision.kube.resources.node import parse_taint
from provision.kube.values import laid_over

SHARED_CONFIG = "provision-sharing"
"""ConfigMap of the device plugin's sharing, and the name of its only entry."""
RESOURCE = "nvidia.com/gpu"
_OWN_TAINT = {"key": RESOURCE, "operator": "Exists", "effect": "NoSchedule"}
_CONTROL_PLANE = {
    "key": "node-role.kubernetes.io/control-plane",
    "operator": "Equal",
    "value": "",
    "effect": "NoSchedule",
}


def gpu_nodes(inventory: Inventory) -> tuple[Node, ...]:
    """Return the managed nodes whose cards pods get."""
    return tuple(node for node in inventory.nodes.values() if node.manage and node.wants_gpu)


def cards_of(node: Node) -> int:
    """Return how many cards a node has; 0 where that is not declared."""
    if node.gpus:
        return len(node.gpus)
    return (node.gpu_cards.count or 0) if node.gpu_cards is not None else 0


def slots(inventory: Inventory) -> int:
    """Return as how many a card is offered by the stock plugin."""
    sharing = inventory.sharing
    if sharing is None or sharing.mode not in {"time_slicing", "mps"}:
        return 1
    return sharing.slots_per_card or 1


def uses_stock_plugin(inventory: Inventory) -> bool:
    """Whether the operator's own plugin offers the cards; HAMi brings one that replaces it."""
    return inventory.sharing is None or inventory.sharing.mode != "hami"


def has_operator_toolkit(inventory: Inventory) -> bool:
    """Whether the operator installs the container toolkit on the nodes."""
    gpu = inventory.gpu
    return gpu is not None and gpu.operator is not None and gpu.toolkit == "operator"


def owns_nfd(inventory: Inventory) -> bool:
    """Whether this operator brings Node Feature Discovery: one of the two operators does."""
    operator = inventory.gpu.operator if inventory.gpu is not None else None
    if operator is not None and operator.nfd is not None:
        return operator.nfd
    other = inventory.rdma.operator if inventory.rdma is not None else None
    return other is None or not other.nfd


def mig_profiles(inventory: Inventory) -> Mapping[str, str]:
    """Return the configuration of the MIG manager by node."""
    operator = inventory.gpu.operator if inventory.gpu is not None else None
    return operator.mig.profiles if operator is not None and operator.mig is not None else {}


def operator_values(inventory: Inventory) -> Mapping[str, Any]:
    """Return the values of the chart.

    The driver is on the host: a driver container would collide with it. Without the CRDs of Prometheus, the
    exporter's ServiceMonitor, which the chart makes by default, would fail the installation.
    """
    operator = inventory.gpu.operator if inventory.gpu is not None else None
    tolerations = _tolerations(inventory)
    values: dict[str, Any] = {
        "driver": {"enabled": False},
        "toolkit": _toolkit(by_operator=has_operator_toolkit(inventory)),
        "cdi": {"enabled": True},
        "nfd": {"enabled": owns_nfd(inventory)},
        "devicePlugin": {"enabled": uses_stock_plugin(inventory), **_sharing(inventory)},
        "dcgmExporter": {"serviceMonitor": {"enabled": False}},
        "mig": {"strategy": operator.mig.strategy if operator is not None and operator.mig else "single"},
        "sandboxWorkloads": {"enabled": False},
        "operator": {"cleanupCRD": True},
    }
    if mig_profiles(inventory):
        values["migManager"] = {"enabled": True}
    if tolerations:
        values["daemonsets"] = {"tolerations": [_OWN_TAINT, *tolerations]}
        worker = {"tolerations": [_CONTROL_PLANE, _OWN_TAINT, *tolerations]}
        values["node-feature-discovery"] = {"worker": worker}
    return laid_over(values, operator.values if operator is not None else {})


def _toolkit(*, by_operator: bool) -> dict[str, Any]:
    """Return who installs the container toolkit; by the operator, with the paths of k3s."""
    if not by_operator:
        return {"enabled": False}
    folder = "/var/lib/rancher/k3s/agent/etc/containerd"
    paths = {
        "CONTAINERD_SOCKET": "/run/k3s/containerd/containerd.sock",
        "CONTAINERD_CONFIG": f"{folder}/config.toml",
        "RUNTIME_CONFIG_SOURCE": f"file={folder}/config.toml",
        "RUNTIME_DROP_IN_CONFIG": f"{folder}/config-v3.toml.d/99-nvidia.toml",
        "CONTAINERD_RUNTIME_CLASS": "nvidia",
        "CONTAINERD_SET_AS_DEFAULT": "false",
        # A signal ends containerd, with it k3s, and k3s writes its configuration again.
        "RUNTIME_RESTART_MODE": "none",
    }
    return {"enabled": True, "env": [{"name": name, "value": value} for name, value in paths.items()]}


def _tolerations(inventory: Inventory) -> list[dict[str, str]]:
    """Return what the operands must tolerate to run on the declared GPU nodes."""
    tolerations: list[dict[str, str]] = []
    for node in gpu_nodes(inventory):
        for taint in map(parse_taint, node.taints):
            row = {"key": taint.key, "operator": "Exists", "effect": taint.effect}
            if row not in tolerations and row != _OWN_TAINT:
                tolerations.append(row)
    return tolerations


def _sharing(inventory: Inventory) -> dict[str, Any]:
    """Return the configuration by which the stock plugin offers a card several times."""
    sharing = inventory.sharing
    key = {"time_slicing": "timeSlicing", "mps": "mps"}.get(sharing.mode if sharing is not None else "")
    if key is None:
        return {}
    rule = {"resources": [{"name": RESOURCE, "replicas": slots(inventory)}]}
    text = json.dumps({"version": "v1", "sharing": {key: rule}}, sort_keys=True)
    data = {SHARED_CONFIG: text}
    return {"config": {"create": True, "name": SHARED_CONFIG, "default": SHARED_CONFIG, "data": data}}
