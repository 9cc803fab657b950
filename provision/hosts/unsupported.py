"""What an inventory may declare of hosts and no role serves yet."""

from __future__ import annotations

from collections.abc import Iterator

from provision.contracts.support import Unsupported
from provision.inventory import Inventory


def unsupported(inventory: Inventory) -> Iterator[Unsupported]:
    """Yield options of the site as a whole that nothing reads yet."""
    sources, network = inventory.sources, inventory.network
    if sources.registries and inventory.k3s is None:  # k3s's registries.yaml has them
        yield Unsupported("sources_registries", "sources.registries", ("sources", "registries"))
    if network is not None and network.dns:
        yield Unsupported("resolver", "network.dns", ("network", "dns"))
    if network is not None and network.domain is not None:
        yield Unsupported("resolver", "network.domain", ("network", "domain"))
