"""What `verify --break CHECK` does to the router of a lab."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from shlex import quote

from provision.contracts.check import Damage
from provision.dhcp.dnsmasq_paths import HOSTS_FOLDER
from provision.hosts.names import ROUTER
from provision.inventory import Inventory

STRANGER = "52:54:00:00:00:99"


def _reserved(inventory: Inventory, name: str) -> Damage | None:
    dhcp = inventory.dhcp
    if dhcp is None or dhcp.backend != "dnsmasq":
        return None
    folder = quote((dhcp.file or HOSTS_FOLDER).rstrip("/"))
    address = (inventory.nodes.get(name) or inventory.hypervisors[name]).address
    return Damage(ROUTER, script=f"sed -i 's/^[^,]*,{address},/{STRANGER},{address},/' {folder}/*")


DAMAGES: Mapping[str, Callable[[Inventory, str], Damage | None]] = {"test_address_is_reserved": _reserved}
