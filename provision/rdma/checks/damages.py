"""What `verify --break CHECK` does to a node of a lab that has rails."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from provision.contracts.check import Damage
from provision.hosts.names import ssh
from provision.inventory import Inventory

_SCRIPTS: Mapping[str, str] = {
    "test_rdma_namespaces_at_boot": "rm -f /etc/modprobe.d/provision-rdma-netns.conf",
}


def _damage(script: str) -> Callable[[Inventory, str], Damage | None]:
    def damage(inventory: Inventory, name: str) -> Damage | None:
        node = inventory.nodes.get(name)
        return Damage(ssh(name), script=script) if node is not None and node.rails else None

    return damage


DAMAGES: Mapping[str, Callable[[Inventory, str], Damage | None]] = {
    check: _damage(script) for check, script in _SCRIPTS.items()
}
