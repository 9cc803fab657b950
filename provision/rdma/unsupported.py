"""What an inventory may declare of RDMA and no role serves yet."""

from __future__ import annotations

from collections.abc import Iterator

from provision.contracts.support import CLUSTER, Unsupported
from provision.inventory import Inventory

HOST, NETWORK = "rdma_host", "network_operator"


def unsupported(inventory: Inventory) -> Iterator[Unsupported]:
    """Yield ports, driver stacks, networks of pods, and what verification shall find of them."""
    for name, node in inventory.nodes.items():
        path, ofed = ("nodes", name), node.ofed
        if node.rails or node.rail_addresses:
            yield Unsupported(HOST, "RDMA ports", (*path, "rails"), (name,), (HOST,))
        if ofed is not None and (ofed.manage or ofed.minimum):
            yield Unsupported(HOST, "a NIC driver stack", (*path, "ofed"), (name,), (HOST,))
    if inventory.rdma is not None:
        yield Unsupported(NETWORK, "RDMA of pods", ("rdma",), (CLUSTER,), (NETWORK,))
    for key in ("rdma", "nccl"):
        if getattr(inventory.expect, key) is not None:
            yield Unsupported(f"verify_{key}", f"expect.{key}", ("expect", key), (CLUSTER,), ("verify",))
