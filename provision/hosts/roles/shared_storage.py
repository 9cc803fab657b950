"""Storage that nodes share: an NFS export is mounted, and each node leaves a marker for the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from provision.contracts.resource import Resource
from provision.contracts.role import Context, Role
from provision.hosts import names
from provision.hosts.resources.file import File
from provision.hosts.resources.mount import NfsMount
from provision.hosts.resources.package import Package
from provision.hosts.roles.host_resources import retires
from provision.inventory import Inventory, Subject
from provision.inventory.models.cluster import SharedStorage

NFS = "nfs-common"
OPTIONS = "defaults,_netdev,nofail"
"""A server that is away keeps no machine from booting."""


def is_mounted(storage: SharedStorage) -> bool:
    """Whether provision mounts it."""
    return storage.manage and storage.server is not None


def is_marked(storage: SharedStorage) -> bool:
    """Whether nodes prove by markers that they share it; nothing is written where it is read-only."""
    options = (storage.options or "").split(",")
    return (is_mounted(storage) or bool(storage.same_on_all)) and "ro" not in options


def declared(inventory: Inventory, subject: Subject) -> bool:
    """Whether the node mounts or marks anything."""
    node = inventory.nodes.get(subject.name) if subject.kind == "node" else None
    if node is None or not node.manage:
        return False
    return any(is_mounted(storage) or is_marked(storage) for storage in inventory.storage.values())


def questions(inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
    """Ask nothing: the declaration says it all."""
    del inventory
    return {names.ssh(subject.name): ()}


def resources(context: Context) -> tuple[Resource, ...]:
    """Return mounts, then markers."""
    return tuple(_resources(context))


def _resources(context: Context) -> Iterator[Resource]:
    inventory, node = context.inventory, context.subject.name
    system = names.ssh(node)
    for name, storage in inventory.storage.items():
        source = inventory.source(("storage", name))
        if is_mounted(storage):
            yield Package(system, (NFS,), source=source)
            options = storage.options or OPTIONS
            yield NfsMount(system, storage.path, storage.server or "", options, source=source)
        if is_marked(storage):
            yield File(
                system, names.marker(storage.path, node), f"{inventory.name}\n".encode(), source=source
            )


def retired(context: Context) -> tuple[Resource, ...]:
    """Return markers and lines of fstab as absent on bare metal; a mount stays until the next boot."""
    return tuple(
        replace(resource, absent=True)
        for resource in reversed(resources(context))
        if isinstance(resource, File | NfsMount)
    )


ROLE = Role(
    retired=retired,
    retires=retires,
    name="shared_storage",
    needs=("base_os",),
    declared=declared,
    questions=questions,
    resources=resources,
)
