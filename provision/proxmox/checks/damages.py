"""What `verify --break CHECK` does to a VM or hypervisor of a lab: one thing that the check looks at."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from provision.contracts.check import Damage
from provision.hosts.names import ssh
from provision.inventory import Inventory
from provision.proxmox import names

_Make = Callable[[Inventory, str], Damage | None]


def _config(data: Callable[[Inventory, str], Mapping[str, object]]) -> _Make:
    """Return the damage of a running VM's configuration."""

    def damage(inventory: Inventory, name: str) -> Damage:
        node = inventory.nodes[name]
        hypervisor = inventory.hypervisors[node.hypervisor or ""]
        path = f"/nodes/{hypervisor.node_name}/qemu/{node.vmid}/config"
        return Damage(names.api(hypervisor.name), method="PUT", path=path, data=data(inventory, name))

    return damage


def _mappings(inventory: Inventory, name: str) -> Damage | None:
    for node in names.nodes_of(inventory, name):
        for alias in node.cards if node.manage else ():
            for mapping in names.mappings(inventory, inventory.hypervisors[name], alias):
                path = f"/cluster/mapping/pci/{mapping}"
                return Damage(names.api(name), method="DELETE", path=path)
    return None


def _blacklist(_inventory: Inventory, name: str) -> Damage:
    return Damage(ssh(name), script=f": > /etc/modprobe.d/provision-{names.BLACKLIST}.conf")


DAMAGES: Mapping[str, _Make] = {
    "test_name": _config(lambda _inventory, _name: {"name": "broken"}),
    "test_it_is_marked": _config(lambda _inventory, _name: {"delete": "tags"}),
    "test_start_at_boot": _config(
        lambda inventory, name: {"onboot": int(not inventory.nodes[name].starts_at_boot)}
    ),
    "test_startup": _config(lambda _inventory, _name: {"delete": "startup"}),
    "test_serial_console": _config(lambda _inventory, _name: {"delete": "serial0"}),
    "test_tags": _config(lambda _inventory, _name: {"tags": "provision"}),
    "test_nothing_is_pending": _config(
        lambda inventory, name: {"cores": (inventory.nodes[name].cores or 1) + 1}
    ),
    "test_mappings": _mappings,
    "test_blacklist_at_next_boot": _blacklist,
}
