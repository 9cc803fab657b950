"""What `verify --break CHECK` does to a node of a lab that has rails, and to the networks of its cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from provision.contracts.check import Damage
from provision.hosts.names import ssh
from provision.inventory import Inventory
from provision.kube.names import API

_Make = Callable[[Inventory, str], Damage | None]
_SCRIPTS: Mapping[str, str] = {
    "test_cni_programs": "rm -f /var/lib/rancher/k3s/data/cni/macvlan",
    "test_rdma_namespaces_at_boot": "rm -f /etc/modprobe.d/provision-rdma-netns.conf",
}
_OPERATOR = "/apis/mellanox.com/v1alpha1"


def _damage(script: str) -> _Make:
    def damage(inventory: Inventory, name: str) -> Damage | None:
        node = inventory.nodes.get(name)
        return Damage(ssh(name), script=script) if node is not None and node.rails else None

    return damage


def _patch(path: str, data: dict[str, Any]) -> Damage:
    return Damage(API, method="PATCH", path=path, data=data)


def _policy(_inventory: Inventory, _name: str) -> Damage:
    return _patch(
        f"{_OPERATOR}/nicclusterpolicies/nic-cluster-policy/status", {"status": {"state": "notReady"}}
    )


def _network(inventory: Inventory, _name: str) -> Damage | None:
    rdma = inventory.rdma
    names = [name for name, one in rdma.networks.items() if one.namespaces] if rdma is not None else []
    if not names:
        return None
    return _patch(f"{_OPERATOR}/macvlannetworks/{names[0]}/status", {"status": {"state": "error"}})


def _pool(inventory: Inventory, _name: str) -> Damage | None:
    rdma = inventory.rdma
    if rdma is None or rdma.operator is None or not rdma.networks:
        return None
    namespace = rdma.operator.namespace or "nvidia-network-operator"
    path = (
        f"/apis/nv-ipam.nvidia.com/v1alpha1/namespaces/{namespace}/ippools/{next(iter(rdma.networks))}-pool"
    )
    return _patch(path, {"spec": {"perNodeBlockSize": 1}})


def _namespace(inventory: Inventory, _name: str) -> Damage | None:
    rdma = inventory.rdma
    spaces = [one for network in rdma.networks.values() for one in network.namespaces] if rdma else []
    if not spaces:
        return None
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    return _patch(f"/api/v1/namespaces/{spaces[0]}", {"metadata": {"labels": labels}})


DAMAGES: Mapping[str, _Make] = {
    **{check: _damage(script) for check, script in _SCRIPTS.items()},
    "test_nic_policy_is_ready": _policy,
    "test_rdma_networks": _network,
    "test_rdma_pools": _pool,
    "test_rdma_namespaces_admit": _namespace,
}
