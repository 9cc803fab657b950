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
    "test_gpu_no_mps_left": "mkdir -p /run/nvidia/mps/nvidia.com/gpu/pipe",
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


def _nothing_offered(inventory: Inventory, name: str) -> Damage:
    path = f"/api/v1/nodes/{inventory.nodes[name].kubernetes_name}/status"
    return Damage(API, method="PATCH", path=path, data={"status": {"allocatable": {"nvidia.com/gpu": "0"}}})


def _no_contexts(_inventory: Inventory, name: str) -> Damage:
    """Programs see the cards, and none can compute (`nvidia-smi -c 0` allows it again)."""
    return Damage(ssh(name), script="nvidia-smi -c PROHIBITED")


def _low_memlock(_inventory: Inventory, name: str) -> Damage:
    lines = "for u in '' -agent; do d=/etc/systemd/system/k3s$u.service.d; mkdir -p $d;"
    lines += " printf '[Service]\\nLimitMEMLOCK=65536\\n' > $d/broken.conf; done;"
    return Damage(
        ssh(name),
        script=f"{lines} systemctl daemon-reload; systemctl try-restart k3s.service k3s-agent.service",
    )


DAMAGES: Mapping[str, Callable[[Inventory, str], Damage | None]] = {
    **{check: _damage(script) for check, script in _SCRIPTS.items()},
    "test_gpu_policy_is_ready": _policy,
    "test_gpu_labels": _count_label,
    "test_gpu_compute_mode": _no_contexts,
    "test_gpus_are_allocatable": _nothing_offered,
    "test_cards_compute_in_pods": _no_contexts,
    "test_pods_may_lock_memory": _low_memlock,
}
