"""Where vendor snippets lie on a hypervisor."""

from __future__ import annotations

from typing import Any

from provision.inventory import Inventory
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node
from provision.resources.contracts import Snapshot
from provision.resources.host.query_file import FileState
from provision.roles import names

DEFAULT = "/var/lib/vz"
"""Path of the storage `local` on every Proxmox VE."""


def path(inventory: Inventory, hypervisor: Hypervisor, node: Node, seen: Snapshot | None = None) -> str:
    """Return the path of a node's vendor snippet on its hypervisor."""
    root = storage_path(hypervisor, seen) if seen is not None else DEFAULT
    return f"{root}/snippets/{names.snippet_file(inventory, node)}"


def questions(inventory: Inventory, hypervisor: Hypervisor, node: Node) -> tuple[Any, ...]:
    """Return what is asked of the hypervisor: whether the snippet lies where it usually does."""
    return (FileState(path(inventory, hypervisor, node)),)


def storage_path(hypervisor: Hypervisor, seen: Snapshot) -> str:  # noqa: ARG001 - until storage.cfg is a fact
    """Return the folder of the snippet storage."""
    return DEFAULT
