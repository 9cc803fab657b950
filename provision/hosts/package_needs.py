"""Packages that the roles of a host may install on a node, for a bundle: pure functions of the inventory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from provision.hosts.queries.apt import Offers
from provision.hosts.roles.base_os import CHRONY, TIME_ZONES
from provision.hosts.roles.shared_storage import NFS, is_mounted
from provision.inventory import Inventory
from provision.inventory.models.host_resources import PackageResource
from provision.inventory.models.node import Node


@dataclass(frozen=True, slots=True)
class PackageRequest:
    """Packages that come in one transaction.

    Args:
        words: `NAME` or `NAME=VERSION`.
        recommends: whether recommended packages come with them, as apt does it by itself.
    """

    words: tuple[str, ...]
    recommends: bool = True


PackageArchive = Callable[[tuple[str, ...]], Mapping[str, Offers]]
"""Returns what the archive of a release has of some packages."""


def packages(inventory: Inventory, node: Node, archive: PackageArchive) -> Iterable[PackageRequest]:
    """Return what base_os, host_resources and shared_storage may install."""
    del archive
    names = tuple(dict.fromkeys(_names(inventory, node)))
    return (PackageRequest(names),) if names else ()


def _names(inventory: Inventory, node: Node) -> Iterator[str]:
    yield from node.packages
    if node.ntp is not None:
        yield CHRONY  # a node without any time daemon gets it
    if node.timezone:
        yield TIME_ZONES
    for resource in node.host_resources:
        if isinstance(resource, PackageResource) and not resource.absent:
            yield resource.name
    if any(map(is_mounted, inventory.storage.values())):
        yield NFS
