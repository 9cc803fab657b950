"""GPU sharing, as the composition root sees it."""

from __future__ import annotations

from provision.contracts.domain import Domain
from provision.contracts.support import Untested
from provision.inventory import Inventory


def _has_untried_mode(inventory: Inventory) -> bool:
    return inventory.sharing is not None and inventory.sharing.mode in ("hami", "kai")


def _has_fractions(inventory: Inventory) -> bool:
    return inventory.sharing is not None and inventory.sharing.mode == "kai_fractions"


def _is_declared(inventory: Inventory) -> bool:
    return inventory.sharing is not None or inventory.gpu is not None


DOMAIN = Domain(
    "sharing",
    concerns=_is_declared,
    roles={"gpu_sharing": "provision.sharing.roles.gpu_sharing:ROLE"},
    rules="provision.sharing.preflight:RULES",
    evidence="provision.sharing.preflight:evidence",
    checks=("provision.sharing.checks",),
    untested=(
        Untested("HAMi and KAI Scheduler on cards", ("sharing", "mode"), _has_untried_mode),
        Untested("GPU fractions over MPS, an experiment", ("sharing", "mode"), _has_fractions),
    ),
    downloads="provision.sharing.roles.gpu_sharing:downloads",
    unsupported="provision.sharing.unsupported:unsupported",
    sections=(("sharing",),),
)
