"""What `verify --break CHECK` does to a cluster: one thing that the check looks at."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from provision.contracts.check import Damage
from provision.inventory import Inventory
from provision.kube.names import API

_Make = Callable[[Inventory, str], Damage | None]


def _path(inventory: Inventory, name: str) -> str:
    return f"/api/v1/nodes/{inventory.nodes[name].kubernetes_name}"


def _cordon(inventory: Inventory, name: str) -> Damage:
    return Damage(API, method="PATCH", path=_path(inventory, name), data={"spec": {"unschedulable": True}})


def _label(inventory: Inventory, name: str) -> Damage | None:
    key = next(iter(inventory.nodes[name].labels), None)
    if key is None:
        return None
    data = {"metadata": {"labels": {key: "broken"}}}
    return Damage(API, method="PATCH", path=_path(inventory, name), data=data)


def _left_resource(inventory: Inventory, name: str) -> Damage:
    data = {"status": {"capacity": {"nvidia.com/broken": "0"}}}
    return Damage(API, method="PATCH", path=f"{_path(inventory, name)}/status", data=data)


def _taint(inventory: Inventory, name: str) -> Damage:
    return Damage(API, method="PATCH", path=_path(inventory, name), data={"spec": {"taints": None}})


def _not_ready(inventory: Inventory, name: str) -> Damage:
    condition = {"type": "Ready", "status": "False", "message": "broken"}
    path = f"{_path(inventory, name)}/status"
    return Damage(API, method="PATCH", path=path, data={"status": {"conditions": [condition]}})


DAMAGES: Mapping[str, _Make] = {
    "test_node_is_schedulable": _cordon,
    "test_node_is_ready": _not_ready,
    "test_node_has_no_left_resources": _left_resource,
    "test_node_labels": _label,
    "test_node_taints": _taint,
}
