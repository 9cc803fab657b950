"""RDMA networks of pods, as the composition root sees it."""

from __future__ import annotations

from provision.contracts.domain import Domain

DOMAIN = Domain(
    "rdma",
    planned_roles=("rdma_host", "network_operator"),
    unsupported="provision.rdma.unsupported:unsupported",
    sections=(("rdma",),),
)
