"""RDMA networks of pods, as the composition root sees it."""

from __future__ import annotations

from provision.contracts.domain import Domain
from provision.contracts.support import Untested
from provision.inventory import Inventory


def _has_rails(inventory: Inventory) -> bool:
    return any(node.rails for node in inventory.nodes.values())


def _has_networks(inventory: Inventory) -> bool:
    return inventory.rdma is not None and bool(inventory.rdma.networks)


def _is_declared(inventory: Inventory) -> bool:
    nodes = inventory.nodes.values()
    return inventory.rdma is not None or any(node.rails or node.ofed for node in nodes)


DOMAIN = Domain(
    "rdma",
    concerns=_is_declared,
    query_kinds={"host": "provision.rdma.queries:HOST_KINDS"},
    roles={
        "rdma_host": "provision.rdma.roles.rdma_host:ROLE",
        "network_operator": "provision.rdma.roles.network_operator:ROLE",
    },
    destroy_keeps=frozenset({"rdma_host"}),
    rules="provision.rdma.preflight:RULES",
    evidence="provision.rdma.preflight:evidence",
    checks=("provision.rdma.checks",),
    untested=(
        Untested("RDMA ports of physical NICs", ("rdma",), _has_rails),
        Untested("RDMA networks of pods", ("rdma", "networks"), _has_networks),
    ),
    unsupported="provision.rdma.unsupported:unsupported",
    downloads="provision.rdma.roles.network_operator:downloads",
    sections=(("rdma",),),
    packages="provision.rdma.package_needs:packages",
)
