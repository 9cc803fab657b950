"""Packages that the roles of RDMA may install on a node, for a bundle: pure functions of the inventory."""

from __future__ import annotations

from collections.abc import Iterable

from provision.hosts.package_needs import PackageArchive, PackageRequest
from provision.inventory import Inventory
from provision.inventory.models.node import Node
from provision.rdma import cni_paths
from provision.rdma.roles.rdma_host import RDMA_CORE, missing_programs


def packages(inventory: Inventory, node: Node, archive: PackageArchive) -> Iterable[PackageRequest]:
    """Return the user-space part of RDMA, and the package of CNI programs."""
    del archive
    if not node.rails:
        return ()
    names = [] if node.ofed is not None else [RDMA_CORE]
    if missing_programs(inventory, node.name):
        names.append(cni_paths.PACKAGE)
    return (PackageRequest(tuple(names)),) if names else ()
