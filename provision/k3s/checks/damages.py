"""What `verify --break CHECK` does to a node of a lab: one thing that the check looks at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from provision.contracts.check import Damage
from provision.hosts.names import ssh
from provision.inventory import Inventory

_SCRIPTS = {
    "test_k3s_runs": "systemctl disable k3s.service k3s-agent.service 2>/dev/null || :",
    "test_flannel_device": "ip link delete flannel.1 2>/dev/null || :",
    "test_k3s_files_are_private": "chmod 644 /etc/rancher/k3s/config.yaml",
    "test_etcd_snapshots": "rm -f /var/lib/rancher/k3s/server/db/snapshots/*",
    "test_k3s_configuration": "sed -i 's/^node-ip: .*/node-ip: 192.0.2.1/' /etc/rancher/k3s/config.yaml",
}


def _damage(script: str, inventory: Inventory, name: str) -> Damage | None:
    node = inventory.nodes.get(name)
    return None if node is None or node.k3s is None else Damage(ssh(name), script=script)


DAMAGES: Mapping[str, Callable[[Inventory, str], Damage | None]] = {
    check: partial(_damage, script) for check, script in _SCRIPTS.items()
}
