"""What `verify --break CHECK` does to a cluster of a lab that shares cards."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from provision.contracts.check import Damage
from provision.inventory import Inventory
from provision.kube.names import API

APPS = "/apis/apps/v1/namespaces"


def _controllers(inventory: Inventory, _name: str) -> Damage | None:
    sharing = inventory.sharing
    places = {"hami": "hami-system/deployments/hami-scheduler", "kai": "kai-scheduler/deployments/binder"}
    places["kai_fractions"] = places["kai"]
    place = places.get(sharing.mode) if sharing is not None else None
    return Damage(API, method="DELETE", path=f"{APPS}/{place}") if place is not None else None


def _queue(inventory: Inventory, _name: str) -> Damage | None:
    queues = inventory.sharing.queues if inventory.sharing is not None else {}
    parents = {queue.parent for queue in queues.values()}
    leaf = next((name for name in queues if name not in parents), None)
    path = f"/apis/scheduling.run.ai/v2/queues/{leaf}"
    return Damage(API, method="DELETE", path=path) if leaf is not None else None


def _second_plugin(_inventory: Inventory, _name: str) -> Damage:
    labels = {"name": "nvidia-device-plugin-ds"}
    data = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "nvidia-device-plugin-daemonset", "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": {"provision/never": "true"},
                    "containers": [{"name": "pause", "image": "registry.k8s.io/pause:3.10"}],
                },
            },
        },
    }
    return Damage(API, method="POST", path=f"{APPS}/kube-system/daemonsets", data=data)


DAMAGES: Mapping[str, Callable[[Inventory, str], Damage | None]] = {
    "test_sharing_controllers_run": _controllers,
    "test_sharing_queues": _queue,
    "test_one_plugin_offers_the_cards": _second_plugin,
}
