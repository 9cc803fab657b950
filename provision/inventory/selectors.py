"""Subjects, and the selectors of playbooks that name them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from provision.inventory.scalars import near
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError

if TYPE_CHECKING:
    from provision.inventory.models.inventory import Inventory
    from provision.inventory.models.node import Node


@dataclass(frozen=True, slots=True)
class Subject:
    """An inventory item that a step is about.

    Args:
        kind: hypervisor, node or cluster.
        name: its key in the inventory; `cluster` for the cluster.
    """

    kind: Literal["hypervisor", "node", "cluster"]
    name: str

    def __str__(self) -> str:
        return self.name


_NODES: dict[str, Callable[[Node], bool]] = {
    "nodes": lambda _: True,
    "nodes.virtual": lambda node: node.is_virtual,
    "nodes.gpu": lambda node: node.wants_gpu,
    "nodes.rdma": lambda node: bool(node.rails or node.rail_addresses),
    "nodes.k3s_server": lambda node: node.k3s == "server",
    "nodes.k3s_agent": lambda node: node.k3s == "agent",
}
SELECTORS = ("hypervisors", *_NODES, "cluster")
"""All selectors, in the order of the docs."""


def select(inventory: Inventory, selector: str) -> tuple[Subject, ...]:
    """Return a selector's subjects in the inventory's order; the cluster only where one is declared.

    Raises:
        UsageError: there is no such selector.
    """
    if selector == "hypervisors":
        return tuple(Subject("hypervisor", name) for name in inventory.hypervisors)
    if selector == "cluster":
        is_declared = inventory.k3s is not None or inventory.cluster.kubeconfig is not None
        return (Subject("cluster", "cluster"),) if is_declared else ()
    matches = _NODES.get(selector)
    if matches is None:
        summary = f"{selector!r} is not a selector{near(selector, SELECTORS)}"
        raise UsageError(
            Diagnostic("SELECTOR_UNKNOWN", summary, remedy=f"selectors are {', '.join(SELECTORS)}")
        )
    return tuple(Subject("node", name) for name, node in inventory.nodes.items() if matches(node))
