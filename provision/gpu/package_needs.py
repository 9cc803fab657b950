"""Packages of a driver that a node may need, for a bundle: by what the archive offers.

Which modules a node takes is known by its cards and its kernel alone, so all that it may take is returned:
both kinds of modules where none is declared, and those of the distribution's usual kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from provision.gpu.origins import ORIGINS, Gone, Wish, all_names, choose
from provision.gpu.roles.gpu_driver import TOOLKIT, gone, managed_driver
from provision.hosts.package_needs import PackageArchive, PackageRequest
from provision.inventory import Inventory
from provision.inventory.models.node import Driver, Node
from provision.values.errors import Permanent

KERNELS = {
    "debian": ("cloud-amd64", "amd64"),
    "ubuntu": ("generic", "generic-hwe-26.04", "generic-hwe-24.04", "generic-hwe-22.04"),
}
"""Suffixes of kernel meta packages, as images have them."""


def packages(inventory: Inventory, node: Node, archive: PackageArchive) -> Iterable[PackageRequest]:
    """Yield each set of packages that the driver may consist of.

    Raises:
        Permanent: DRIVER_VERSION_GONE, DRIVER_ORIGIN_MISSING: the archive has no such driver.
    """
    driver = managed_driver(inventory, node.name)
    if driver is None or driver.origin is None:
        return
    if inventory.gpu is not None and inventory.gpu.toolkit == "host":
        yield PackageRequest((TOOLKIT,))
    if driver.origin not in KERNELS:
        own = ORIGINS[driver.origin].parts[0]
        yield PackageRequest(own.names[-1:])  # of another archive
        return
    yield from _sets(inventory, node, driver, archive)


def _sets(
    inventory: Inventory, node: Node, driver: Driver, archive: PackageArchive
) -> Iterator[PackageRequest]:
    origin = driver.origin or ""
    kernels = KERNELS[origin]
    offers = archive(all_names(origin, driver.branch or "", kernels))
    has_switch = node.gpu_cards is not None and bool(node.gpu_cards.nvswitch)
    reasons: list[tuple[Gone, Wish]] = []
    is_any = False
    for kind in (driver.kind,) if driver.kind else ("open", "proprietary"):
        wish = Wish(
            origin,
            driver.branch or "",
            driver.version or "",
            kind,
            nvswitch=has_switch and driver.fabric_manager != "unmanaged",
        )
        for kernel in kernels:
            chosen = choose(wish, offers, kernel)
            if isinstance(chosen, Gone):
                reasons.append((chosen, wish))
                continue
            is_any = True
            words = (f"{name}={version}" if version else name for name, version in chosen.packages)
            yield PackageRequest(tuple(words), recommends=False)
    if not is_any:
        reason, wish = reasons[0]
        raise Permanent(gone(reason, node.name, wish, inventory.source(("nodes", node.name, "driver"))))
