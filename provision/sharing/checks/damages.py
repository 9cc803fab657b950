"""What `verify --break CHECK` does to a cluster of a lab that shares cards."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from provision.contracts.check import Damage
from provision.inventory import Inventory
from provision.kube.checks.pods import MOST_PODS
from provision.kube.names import API
from provision.sharing.checks.test_kai_pods import lenders

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


def _share(queue: str, key: str) -> Damage:
    """Take a share of a queue away: -1 is unlimited."""
    path = f"/apis/scheduling.run.ai/v2/queues/{queue}"
    return Damage(API, method="PATCH", path=path, data={"spec": {"resources": {"gpu": {key: -1}}}})


def _limit(inventory: Inventory, _name: str) -> Damage | None:
    queues = inventory.sharing.queues if inventory.sharing is not None else {}
    limited = (
        name for name, queue in queues.items() if queue.gpu is not None and (queue.gpu.limit or -1) > 0
    )
    name = next(limited, None)
    return _share(name, "limit") if name is not None else None


def _loan(inventory: Inventory, _name: str) -> Damage | None:
    queues = inventory.sharing.queues if inventory.sharing is not None else {}
    pair = next(lenders(queues, MOST_PODS), None)
    return _share(pair[0], "quota") if pair is not None else None


def _webhook(_inventory: Inventory, _name: str) -> Damage:
    hooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    return Damage(API, method="DELETE", path=f"{hooks}/hami-webhook")


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
    "test_kai_limits_a_queue": _limit,
    "test_kai_takes_back_what_a_queue_lent": _loan,
    "test_hami_gives_the_named_cards": _webhook,
}
