"""All systems of a site."""

from __future__ import annotations

from provision.contracts.system import SystemSpec
from provision.dhcp.systems import _router, _speaks_ssh
from provision.hosts.systems import _metal
from provision.inventory import Inventory
from provision.proxmox.systems import _api, _host


def systems(inventory: Inventory) -> dict[str, SystemSpec]:
    """Return all systems by name, in the order in which they can be reached."""
    found: list[SystemSpec] = []
    for hypervisor in inventory.hypervisors.values():
        found += [_api(inventory, hypervisor), _host(inventory, hypervisor)]
    dhcp = inventory.dhcp
    if dhcp is not None and _speaks_ssh(dhcp):
        found.append(_router(inventory, dhcp))
    for node in inventory.nodes.values():
        above = inventory.hypervisor_of(node)
        if above is None:
            found.append(_metal(inventory, node))
        else:
            from provision.proxmox.guests import guest  # noqa: PLC0415 - slow, and bare metal has none

            found.append(guest(inventory, above, node))
    return {each.name: each for each in found}
