"""What an inventory may declare of RDMA and no role serves yet."""

from __future__ import annotations

from collections.abc import Iterator

from provision.contracts.support import CLUSTER, Unsupported
from provision.inventory import Inventory

STACK, VM = "ofed", "rdma_vm"
METHODS = {"host_device": "whole NICs for pods (host_device)", "sriov": "virtual functions for pods (sriov)"}
_OPERATOR = ("network_operator",)


def unsupported(inventory: Inventory) -> Iterator[Unsupported]:
    """Yield driver stacks, ports of VMs, and networks of pods."""
    for name, node in inventory.nodes.items():
        path = ("nodes", name)
        if node.ofed is not None and (node.ofed.manage or node.ofed.version):
            yield Unsupported(STACK, "a NIC driver stack", (*path, "ofed"), (name,), ("rdma_host",))
        if node.rails and node.is_virtual and not node.pci:
            # A virtio NIC has no RDMA.
            yield Unsupported(
                VM, "RDMA ports of a VM without a card under `pci`", (*path, "rails"), (name,), ("rdma_host",)
            )
    yield from _networks(inventory)


def _networks(inventory: Inventory) -> Iterator[Unsupported]:
    rdma = inventory.rdma
    if rdma is None or not (rdma.operator or rdma.resources or rdma.networks):
        return
    if rdma.method in METHODS:
        path = ("rdma", "method")
        yield Unsupported(f"network_{rdma.method}", METHODS[rdma.method], path, (CLUSTER,), _OPERATOR)
    if rdma.operator is None:
        what = "RDMA of pods without `rdma.operator`"
        yield Unsupported("network_manual", what, ("rdma",), (CLUSTER,), _OPERATOR)
    for name, network in rdma.networks.items():
        if network.pool is None:
            where = ("rdma", "networks", name)
            yield Unsupported(
                "network_addresses", f"network {name} without a pool", where, (CLUSTER,), _OPERATOR
            )
