"""Pools of VMs: a VM that exists is moved into its pool on the host, which costs the token no further right.

Source: pve-access-control, `PVE/AccessControl.pm`, write_user_config:
`pool:NAME:COMMENT:VMIDS:STORAGES:`, with colons of the comment encoded. Proxmox VE 8.1 brought
`pveum pool modify --allow-move`.
"""

from __future__ import annotations

import re

from provision.hosts import names as host_names
from provision.hosts.queries.shell import Shell
from provision.hosts.resources.command import Command
from provision.inventory import Inventory
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node
from provision.proxmox import names

USERS = "/etc/pve/user.cfg"


def membership(inventory: Inventory, node: Node) -> Shell:
    """Return the question whether a VM is in its pool: status 0 if it is."""
    pool = re.escape(node.pool or "")
    vmid = names.vmid(inventory, node)
    return Shell(f"grep -Eq '^pool:{pool}:[^:]*:([0-9]+,)*{vmid}(,[0-9]+)*:' {USERS}")


def pool_member(inventory: Inventory, node: Node, hypervisor: Hypervisor) -> Command:
    """Return a VM that exists as a member of its pool; it leaves the pool that it was in."""
    return Command(
        host_names.ssh(hypervisor.name),
        f"pool {node.pool} of {node.name}",
        f"pveum pool modify {node.pool} --vms {names.vmid(inventory, node)} --allow-move 1",
        unless=membership(inventory, node).command,
        source=inventory.source(("nodes", node.name, "pool")),
    )
