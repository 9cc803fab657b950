"""GPUs, as the composition root sees them."""

from __future__ import annotations

from provision.contracts.domain import Domain
from provision.contracts.support import Untested
from provision.gpu.gpu_effects import EFFECTS
from provision.inventory import Inventory


def _has_untried_driver(inventory: Inventory) -> bool:
    return any(
        node.driver is not None and node.driver.manage and node.driver.origin in ("ubuntu", "nvidia")
        for node in inventory.nodes.values()
    )


def _is_declared(inventory: Inventory) -> bool:
    nodes = inventory.nodes.values()
    return inventory.gpu is not None or any(node.driver or node.gpu_cards or node.gpus for node in nodes)


DOMAIN = Domain(
    "gpu",
    concerns=_is_declared,
    effects=EFFECTS,
    query_kinds={"host": "provision.gpu.query_kinds:HOST_KINDS"},
    roles={
        "gpu_driver": "provision.gpu.roles.gpu_driver:ROLE",
        "gpu_operator": "provision.gpu.roles.gpu_operator:ROLE",
        "nvls_recovery": "provision.gpu.roles.nvls_recovery:ROLE",
    },
    destroy_keeps=frozenset({"gpu_driver", "nvls_recovery"}),
    rules="provision.gpu.preflight:RULES",
    evidence="provision.gpu.preflight:evidence",
    checks=("provision.gpu.checks",),
    untested=(Untested("GPU drivers of Ubuntu and NVIDIA", ("gpu", "driver"), _has_untried_driver),),
    unsupported="provision.gpu.unsupported:unsupported",
    downloads="provision.gpu.roles.gpu_operator:downloads",
    sections=(("gpu",),),
    packages="provision.gpu.package_needs:packages",
)
