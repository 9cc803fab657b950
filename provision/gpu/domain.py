"""GPUs, as the composition root sees them."""

from __future__ import annotations

from provision.contracts.domain import Domain
from provision.gpu.gpu_effects import EFFECTS

DOMAIN = Domain(
    "gpu",
    effects=EFFECTS,
    query_kinds={"host": "provision.gpu.queries:HOST_KINDS"},
    planned_roles=("gpu_driver", "gpu_operator"),
    unsupported="provision.gpu.unsupported:unsupported",
    sections=(("gpu",),),
)
