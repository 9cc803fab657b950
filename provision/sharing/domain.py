"""GPU sharing, as the composition root sees it."""

from __future__ import annotations

from provision.contracts.domain import Domain

DOMAIN = Domain(
    "sharing",
    planned_roles=("gpu_sharing",),
    unsupported="provision.sharing.unsupported:unsupported",
    sections=(("sharing",),),
)
