"""NVIDIA Dynamo, as the composition root sees it."""

from __future__ import annotations

from provision.contracts.domain import Domain

DOMAIN = Domain(
    "dynamo",
    planned_roles=("dynamo",),
    unsupported="provision.dynamo.unsupported:unsupported",
    sections=(("dynamo",),),
)
