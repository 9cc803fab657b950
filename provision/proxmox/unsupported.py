"""What an inventory may declare of hypervisors and no role serves yet."""

from __future__ import annotations

from collections.abc import Iterator

from provision.contracts.support import Unsupported
from provision.inventory import Inventory


def unsupported(inventory: Inventory) -> Iterator[Unsupported]:
    """Yield package repositories that are to be managed."""
    for name, hypervisor in inventory.hypervisors.items():
        if hypervisor.repositories != "unmanaged":
            what, path = f"repositories {hypervisor.repositories}", ("hypervisors", name, "repositories")
            yield Unsupported("repositories", what, path, (name,), ("hypervisor_host",))
