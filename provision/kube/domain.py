"""Kubernetes, as the composition root sees it."""

from __future__ import annotations

from provision.contracts.domain import Domain
from provision.inventory import Inventory
from provision.kube.kube_effects import EFFECTS


def _is_declared(inventory: Inventory) -> bool:
    sections = (inventory.k3s, inventory.gpu, inventory.rdma, inventory.sharing, inventory.cluster.kubeconfig)
    return any(section is not None for section in sections)


DOMAIN = Domain(
    "kube",
    concerns=_is_declared,
    effects=EFFECTS,
    systems="provision.kube.systems:systems",
    drivers={"cluster": "provision.kube.systems:open_api"},
    roles={"kubernetes_node": "provision.kube.roles.kubernetes_node:ROLE"},
    hooks="provision.kube.hooks:hooks",
    downloads="provision.kube.helm_program:downloads",
    rules="provision.kube.preflight:RULES",
    checks=("provision.kube.checks",),
)
