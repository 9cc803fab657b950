"""What an inventory may declare of NVIDIA Dynamo and no role serves yet."""

from __future__ import annotations

from collections.abc import Iterator

from provision.contracts.support import CLUSTER, Unsupported
from provision.inventory import Inventory

ROLE = "dynamo"


def unsupported(inventory: Inventory) -> Iterator[Unsupported]:
    """Yield the section of Dynamo."""
    if inventory.dynamo is not None:
        yield Unsupported(ROLE, "NVIDIA Dynamo", ("dynamo",), (CLUSTER,), (ROLE,))
