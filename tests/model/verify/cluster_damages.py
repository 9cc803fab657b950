"""What somebody does to a cluster behind our back, and which check must see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from provision.lab.kube.store import Write
from provision.testing.model_cluster import end_namespaces, set_status
from tests.model.model_site import ModelSite
from tests.model.verify.damage import Damage

NAMESPACE = "gpu-operator"
NODE = "vm"


def freeze(site: ModelSite) -> None:
    """Stop the controllers that would undo a damage; pods of checks run, and namespaces go."""
    site.cluster.controllers[:] = [site.cluster.pods, end_namespaces]


def status(kind: str, name: str, **fields: Any) -> Callable[[ModelSite], object]:
    """Return a damage of an object's status, which no controller undoes."""

    def change(site: ModelSite) -> None:
        freeze(site)
        namespace = "" if kind in {"Node", "ClusterPolicy"} else NAMESPACE
        held = site.cluster.get(kind, name, namespace)
        assert held is not None
        set_status(site.cluster.store, site.cluster.store.kind(kind), held, fields)

    return change


def node(**fields: Any) -> Callable[[ModelSite], object]:
    """Return a damage of the Node's labels; None removes one."""

    def change(site: ModelSite) -> None:
        freeze(site)
        held = site.cluster.get("Node", NODE)
        assert held is not None
        labels = {**held["metadata"]["labels"], **fields.get("labels", {})}
        kept = {key: value for key, value in labels.items() if value is not None}
        made = {**held, "metadata": {**held["metadata"], "labels": kept}}
        made["spec"] = {**held["spec"], **fields.get("spec", {})}
        site.cluster.store.update(site.cluster.store.kind("Node"), ("", NODE), made, Write("somebody"))

    return change


def deployment(name: str, **fields: Any) -> Callable[[ModelSite], object]:
    """Return a damage of the status of one of KAI's Deployments."""

    def change(site: ModelSite) -> None:
        freeze(site)
        held = site.cluster.get("Deployment", name, "kai-scheduler")
        assert held is not None
        set_status(site.cluster.store, site.cluster.store.kind("Deployment"), held, fields)

    return change


def queue(name: str) -> Callable[[ModelSite], object]:
    """Return a damage that deletes a queue."""
    return lambda site: site.cluster.store.delete(site.cluster.store.kind("Queue"), ("", name))


def second_plugin(site: ModelSite) -> None:
    """Install the plugin of the vendor's own chart beside that of the operator."""
    metadata = {"name": "nvidia-device-plugin-daemonset", "namespace": "kube-system"}
    site.cluster.store.seed({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": {}})


def pods(**fields: Any) -> Callable[[ModelSite], object]:
    """Return a damage of what pods see of cards; the fixture `site` undoes it."""

    def change(site: ModelSite) -> None:
        for name, value in fields.items():
            setattr(site.cluster.cuda, name, value)

    return change


def old_plugin(site: ModelSite) -> None:
    """Leave the plugin's pod as it was before a boot, as the API shows it until the kubelet starts it."""
    name = f"nvidia-device-plugin-daemonset-{NODE}"
    held = site.cluster.get("Pod", name, NAMESPACE)
    assert held is not None
    running = {"name": "x", "state": {"running": {"startedAt": "2001-01-01T00:00:00Z"}}}
    site.cluster.store.seed({**held, "status": {**held["status"], "containerStatuses": [running]}})


def network(**fields: Any) -> Callable[[ModelSite], object]:
    """Return a damage of the network of pods; the fixture `site` undoes it."""

    def change(site: ModelSite) -> None:
        for name, value in fields.items():
            setattr(site.cluster.network, name, value)

    return change


def left_key(site: ModelSite) -> None:
    """Leave what a plugin of MIG slices offered in the status of the node."""
    held = site.cluster.get("Node", NODE)
    assert held is not None
    capacity = {**held["status"].get("capacity", {}), "nvidia.com/mig-1g.5gb": "0"}
    status("Node", NODE, capacity=capacity)(site)


_NO_GPUS = [{"type": "Ready", "status": "True", "reason": "NoGPUNodes"}]
_PAUSED = {"nvidia.com/gpu.deploy.device-plugin": "paused-for-driver-upgrade"}

CLUSTER_DAMAGES = (
    Damage(
        "test_gpu_policy_is_ready",
        "NoGPUNodes",
        status("ClusterPolicy", "cluster-policy", conditions=_NO_GPUS),
        "cluster",
    ),
    Damage(
        "test_gpu_operands_run",
        "nvidia-dcgm-exporter: 0 of 1",
        status("DaemonSet", "nvidia-dcgm-exporter", numberReady=0),
        "cluster",
    ),
    Damage(
        "test_gpus_are_allocatable",
        "0 are allocatable, 1 are declared",
        status("Node", NODE, allocatable={"nvidia.com/gpu": "0"}),
        NODE,
        alone=True,  # checks that need a card are not run then
    ),
    Damage(
        "test_sharing_controllers_run",
        "binder: 0 of 1",
        deployment("binder", availableReplicas=0),
        "cluster",
    ),
    Damage("test_sharing_queues", "queue team is not there", queue("team"), "cluster"),
    Damage("test_one_plugin_offers_the_cards", "kube-system/nvidia", second_plugin, "cluster"),
    Damage(
        "test_cards_compute_in_pods",
        "vectorAdd ended with 1: Failed to allocate device vector A",
        pods(code=1, message="Failed to allocate device vector A (error code initialization error)!"),
        NODE,
    ),
    Damage("test_pods_that_ask_for_none_see_no_card", "it sees GPU-00000001", pods(leaks=True), NODE),
    Damage("test_pods_may_lock_memory", "the limit is 8192 KiB", pods(memlock="8192"), NODE),
    Damage("test_plugin_started_since_boot", "has not started since the node's boot", old_plugin, NODE),
    Damage(
        "test_dcgm_diagnostics_pass", "NVML Library: fail", pods(diagnostics={"NVML Library": "Fail"}), NODE
    ),
    Damage("test_pods_reach_each_other", "gets 0 of 1048576 bytes", network(loaded=0), "cluster"),
    Damage("test_pods_reach_each_other", "finds no name", network(names=False), "cluster"),
    Damage("test_node_has_no_left_resources", "/status/capacity/nvidia.com~1mig-1g.5gb", left_key, NODE),
    Damage("test_gpu_labels", "has not labelled it", node(labels={"nvidia.com/gpu.count": None}), NODE),
    Damage("test_gpu_labels", "paused-for-driver-upgrade", node(labels=_PAUSED), NODE),
)
