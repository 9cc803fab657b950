"""k3s, as the composition root sees it."""

from __future__ import annotations

from provision.contracts.domain import Domain
from provision.inventory import Inventory
from provision.k3s.k3s_effects import EFFECTS


def _is_declared(inventory: Inventory) -> bool:
    return inventory.k3s is not None


DOMAIN = Domain(
    "k3s",
    concerns=_is_declared,
    effects=EFFECTS,
    systems="provision.k3s.api:systems",
    parents="provision.k3s.cluster:parents",
    query_kinds={"host": "provision.k3s.queries:KINDS"},
    roles={
        "k3s_server": "provision.k3s.roles.k3s_server:ROLE",
        "k3s_agent": "provision.k3s.roles.k3s_agent:ROLE",
    },
    hooks="provision.k3s.hooks:hooks",
    rules="provision.k3s.preflight:RULES",
    evidence="provision.k3s.preflight:evidence",
    doctor="provision.k3s.doctor:RULES",
    checks=("provision.k3s.checks",),
    unsupported="provision.k3s.unsupported:unsupported",
    downloads="provision.k3s.artifacts:downloads",
    sections=(("k3s",),),
)
