"""What an inventory may declare of DHCP and nothing speaks to yet."""

from __future__ import annotations

from collections.abc import Iterator

from provision.contracts.support import Unsupported
from provision.inventory import Inventory

STEPS = ("dhcp_reservation", "address")


def unsupported(inventory: Inventory) -> Iterator[Unsupported]:
    """Yield reservations in an order that is not supported."""
    dhcp, backend = inventory.dhcp, inventory.dhcp_backend
    if dhcp is None or backend is None:
        return
    subjects = [name for name, hypervisor in inventory.hypervisors.items() if hypervisor.reserve_address]
    subjects += [name for name, node in inventory.nodes.items() if node.is_virtual]
    path = ("network", "dhcp")
    for subject in subjects:
        if dhcp.order not in backend.orders:
            what = f"dhcp.order {dhcp.order} with {dhcp.backend}"
            yield Unsupported(f"dhcp_{dhcp.order}", what, (*path, "order"), (subject,), STEPS)
