"""The cure of an NVLink fabric out of order. It ends all that uses cards, so only its playbook has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.contracts.effect import Effect
from provision.contracts.resource import Resource
from provision.contracts.role import Context, Role
from provision.gpu.fabric import FabricState
from provision.gpu.gpu_effects import GPU_PODS_LOSE_DEVICE
from provision.gpu.resources.fabric import NvlinkFabric
from provision.hosts import names
from provision.inventory import Inventory, Subject

KUBELETS = ("k3s.service", "k3s-agent.service")
"""Both start pods; the one that a node does not have is not started afterwards either."""


def declared(inventory: Inventory, subject: Subject) -> bool:
    """Whether the node has NVSwitches."""
    node = inventory.nodes.get(subject.name) if subject.kind == "node" else None
    return node is not None and node.manage and node.gpu_cards is not None and node.gpu_cards.nvswitch is True


def questions(inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
    """Ask for the fabric."""
    del inventory
    return {names.ssh(subject.name): (FabricState(),)}


def resources(context: Context) -> tuple[Resource, ...]:
    """Return the fabric; a reset takes the cards from all pods, which leave the node before."""
    name = context.subject.name
    source = context.inventory.source(("nodes", name, "gpu_cards"))
    cost = (Effect(GPU_PODS_LOSE_DEVICE, name),)
    return (NvlinkFabric(names.ssh(name), KUBELETS, risks=cost, source=source),)


ROLE = Role(name="nvls_recovery", declared=declared, questions=questions, resources=resources)
