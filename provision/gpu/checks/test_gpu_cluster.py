"""GPUs in the cluster: the operator is ready, and pods get the declared cards."""

from __future__ import annotations

from typing import Any

import pytest

from provision.contracts.check import NotDeclared, Site, Trivial
from provision.kube.checks.reads import get, prove_daemon_sets
from provision.kube.names import is_member

POLICIES = "/apis/nvidia.com/v1/clusterpolicies"


@pytest.fixture
def namespace(site: Site) -> str:
    """The operator's namespace."""
    gpu = site.inventory.gpu
    if gpu is None or gpu.operator is None:
        raise NotDeclared("no GPU Operator is declared")
    return gpu.operator.namespace or "gpu-operator"


@pytest.fixture
def gpu_node(site: Site, node: str, namespace: str) -> dict[str, Any]:
    """The Node object of a node with cards, which is up."""
    del namespace
    declared = site.inventory.nodes[node]
    if not declared.wants_gpu:
        raise NotDeclared("it has no GPUs")
    items: list[dict[str, Any]] = get(site, "/api/v1/nodes")["items"]
    address = {"type": "InternalIP", "address": declared.address}
    for item in items:
        named = item["metadata"]["name"] == declared.kubernetes_name
        if named or address in item["status"].get("addresses", []):
            ready = {row["type"]: row["status"] for row in item["status"].get("conditions", [])}.get("Ready")
            if ready != "True":
                pytest.skip(f"unknown: {item['metadata']['name']} is not Ready")
            return item
    if not is_member(site.inventory, declared):
        raise NotDeclared("it is not in the cluster")
    pytest.skip("unknown: it has not joined the cluster")


def test_gpu_policy_is_ready(site: Site, cluster: str, namespace: str) -> None:
    """The GPU Operator has reconciled its policy, and found GPU nodes."""
    del cluster, namespace
    items = get(site, POLICIES)["items"]
    assert len(items) == 1, f"there are {len(items)} ClusterPolicies"
    status = items[0].get("status", {})
    reasons = {row["type"]: row.get("reason") for row in status.get("conditions", [])}
    assert (status.get("state"), reasons.get("Ready")) == ("ready", "Reconciled"), (
        f"{status.get('state')}: {reasons}"
    )


def test_gpu_operands_run(site: Site, cluster: str, namespace: str) -> None:
    """Every DaemonSet of the GPU Operator has a pod on each of its nodes that is up, of the present state."""
    del cluster
    prove_daemon_sets(site, namespace)


def test_gpus_are_allocatable(site: Site, node: str, gpu_node: dict[str, Any]) -> None:
    """Pods can ask for as many GPUs of the node as are declared, or for the parts that MIG makes of them."""
    declared, sharing = site.inventory.nodes[node], site.inventory.sharing
    operator = site.inventory.gpu.operator if site.inventory.gpu is not None else None
    profiles = operator.mig.profiles if operator is not None and operator.mig is not None else {}
    if profiles.get(node, "all-disabled") != "all-disabled":
        labels = gpu_node["metadata"].get("labels", {})
        assert labels.get("nvidia.com/mig.config") == profiles[node], "the MIG manager was not asked for that"
        state = labels.get("nvidia.com/mig.config.state")
        assert state == "success", f"the MIG manager says {state or 'nothing'}"
        offers = gpu_node["status"].get("allocatable", {})
        keys = [key for key in offers if key.startswith(("nvidia.com/gpu", "nvidia.com/mig-"))]
        assert any(offers[key] != "0" for key in keys), f"no part of a card is allocatable: {keys}"
        return
    cards = len(declared.gpus) or (declared.gpu_cards.count if declared.gpu_cards is not None else None)
    if not cards:
        raise Trivial("the number of its cards is not declared")
    unset = {"time_slicing": 1, "mps": 1, "hami": 10}  # slots of a card that the mode itself chooses
    is_shared = sharing is not None and sharing.mode in unset
    slots = (sharing.slots_per_card or unset[sharing.mode]) if sharing is not None and is_shared else 1
    offered = gpu_node["status"].get("allocatable", {}).get("nvidia.com/gpu", "none")
    assert offered == str(cards * slots), f"{offered} are allocatable, {cards * slots} are declared"


def test_gpu_labels(gpu_node: dict[str, Any]) -> None:
    """The node's labels say how many cards it has, and no operand is paused there."""
    labels = gpu_node["metadata"].get("labels", {})
    assert "nvidia.com/gpu.count" in labels, "GPU Feature Discovery has not labelled it"
    deploy = "nvidia.com/gpu.deploy."
    paused = [f"{key}={value}" for key, value in labels.items() if key.startswith(deploy) and value != "true"]
    assert not paused, f"paused: {', '.join(paused)}"
