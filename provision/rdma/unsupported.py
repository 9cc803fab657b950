"""What an inventory may declare of RDMA and no role serves yet."""

from __future__ import annotations

from collections.abc import Iterator

from provision.contracts.support import CLUSTER, Unsupported
from provision.inventory import Inventory

STACK, VM, NETWORK = "ofed", "rdma_vm", "network_operator"


def unsupported(inventory: Inventory) -> Iterator[Unsupported]:
    """Yield driver stacks, ports of VMs, networks of pods, and what verification shall find of them."""
    for name, node in inventory.nodes.items():
        path = ("nodes", name)
        if node.ofed is not None and (node.ofed.manage or node.ofed.version):
            yield Unsupported(STACK, "a NIC driver stack", (*path, "ofed"), (name,), ("rdma_host",))
        if node.rails and node.is_virtual:
            # A virtio NIC has no RDMA; a passed-through one needs a key of the VM that does not exist yet.
            yield Unsupported(VM, "RDMA ports of a VM", (*path, "rails"), (name,), ("rdma_host",))
    rdma = inventory.rdma
    if rdma is not None and (rdma.operator is not None or rdma.resources or rdma.networks):
        yield Unsupported(NETWORK, "RDMA of pods", ("rdma",), (CLUSTER,), (NETWORK,))
    for key in ("rdma", "nccl"):
        if getattr(inventory.expect, key) is not None:
            yield Unsupported(f"verify_{key}", f"expect.{key}", ("expect", key), (CLUSTER,), ("verify",))
