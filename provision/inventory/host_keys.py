"""Where the accepted SSH host key of a system stands, and what makes another one the accepted one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from provision.inventory.models.base import Ssh
    from provision.inventory.models.inventory import Inventory


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """What decides about a system's host key.

    Args:
        instead: why `provision trust` would change nothing, empty where it decides.
        accept: what a person does to accept another key; `{key}` stands for its fingerprint.
    """

    instead: str
    accept: str

    def accepts(self, fingerprint: str) -> str:
        """Return what a person does to accept this key."""
        return self.accept.replace("{key}", fingerprint)


def key_place(inventory: Inventory, subject: str, system: str) -> KeyPlace:
    """Return what decides about the host key of a system.

    Args:
        inventory: what the user declared.
        subject: hypervisor, node or `router`.
        system: its name for `provision trust`.
    """
    file = inventory.file or "INVENTORY"
    own: Ssh | None
    node, hypervisor = inventory.nodes.get(subject), inventory.hypervisors.get(subject)
    if hypervisor is not None:
        section, own = ("hypervisors", subject), hypervisor.ssh
        if hypervisor.connection == "local":
            return KeyPlace("provision runs on that machine, without SSH", "")
    elif node is not None:
        section, own = ("nodes", subject), node.ssh
        if node.connection == "local":
            return KeyPlace("provision runs on that machine, without SSH", "")
    else:
        dhcp = inventory.dhcp
        section, own = ("network", "dhcp"), dhcp.ssh if dhcp is not None else None
    if own is not None and own.host_key is not None:
        source = inventory.source((*section, "ssh", "host_key"))
        where = f"{source.file}:{source.line}" if source is not None else file
        return KeyPlace(
            f"its key is in the inventory ({where})", f"write {{key}} as `ssh.host_key` at {where}"
        )
    if node is not None and node.is_virtual:
        return KeyPlace(
            "its key is in its VM's marker", f"`provision import {file} {subject} --host-key {{key}}`"
        )
    return KeyPlace("", f"`provision trust {file} {system} {{key}}`")
