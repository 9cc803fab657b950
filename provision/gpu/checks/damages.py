"""What `verify --break CHECK` does to a node of a lab that has a driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from provision.contracts.check import Damage
from provision.hosts.names import ssh
from provision.inventory import Inventory
from provision.kube.names import API

_SCRIPTS: Mapping[str, str] = {
    "test_gpu_other_drivers_are_off": "rm -f /etc/modprobe.d/provision-gpu.conf",
    "test_gpu_packages_are_held": "rm -f /etc/apt/apt.conf.d/52provision-gpu",
    "test_containerd_has_the_runtime": (
        "sed -i '/nvidia/d' /var/lib/rancher/k3s/agent/etc/containerd/config.toml"
    ),
    "test_pods_keep_cards_after_a_reload": "find /dev/char -lname '*nvidia*' -delete",
    "test_gpu_daemons": "systemctl stop nvidia-persistenced.service",
}


def _damage(script: str) -> Callable[[Inventory, str], Damage | None]:
    def damage(inventory: Inventory, name: str) -> Damage | None:
        node = inventory.nodes.get(name)
        managed = node is not None and node.driver is not None and node.driver.manage
        return Damage(ssh(name), script=script) if managed else None

    return damage


def _policy(_inventory: Inventory, _name: str) -> Damage:
    condition = {"type": "Ready", "status": "False", "reason": "broken"}
    path = "/apis/nvidia.com/v1/clusterpolicies/cluster-policy/status"
    return Damage(API, method="PATCH", path=path, data={"status": {"conditions": [condition]}})


def _count_label(inventory: Inventory, name: str) -> Damage:
    path = f"/api/v1/nodes/{inventory.nodes[name].kubernetes_name}"
    data = {"metadata": {"labels": {"nvidia.com/gpu.count": None}}}
    return Damage(API, method="PATCH", path=path, data=data)


DAMAGES: Mapping[str, Callable[[Inventory, str], Damage | None]] = {
    **{check: _damage(script) for check, script in _SCRIPTS.items()},
    "test_gpu_policy_is_ready": _policy,
    "test_gpu_labels": _count_label,
}
