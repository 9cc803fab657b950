"""A VM that exists and becomes a node: whose it is, and how its configuration is marked."""

from __future__ import annotations

from dataclasses import replace

from provision.inventory import Inventory
from provision.inventory.models.node import Node
from provision.proxmox import marker as markers
from provision.proxmox import names
from provision.proxmox.answers import tags as split_tags
from provision.proxmox.marker import TAG, Marker, noted_tags
from provision.proxmox.queries import Elsewhere, VmState
from provision.proxmox.resources.vm_owner import taken
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent


def foreign(inventory: Inventory, node: Node, state: VmState | Elsewhere) -> Diagnostic:
    """Return the problem of a number that belongs to something else."""
    source = inventory.source(("nodes", node.name))
    return taken(names.vmid(inventory, node), Marker(inventory.name, node.name), state, source)


def own_marker(inventory: Inventory, node: Node, state: VmState) -> Marker:
    """Return what a VM's marker says, as this node's: nothing yet, its own words, or those of a former name.

    Raises:
        Permanent: the VM is another inventory's, or another node's that is declared, too; or first contact
            with it is not finished under a former name.
    """
    marker, tags = state.marker, noted_tags(node.tags)
    if marker is None:
        return Marker(inventory.name, node.name, tags=tags)
    former = marker.inventory == inventory.name and marker.node not in inventory.nodes
    if not former and state.marker_of(inventory.name, node.name) is None:
        raise Permanent(foreign(inventory, node, state))
    snippet = names.snippet_file(inventory, marker.node)
    if former and (marker.first_key or snippet in state.next_value("cicustom")):
        # First contact takes the snippet of the node's own name away: this one would stay, with its key.
        raise Permanent(_unfinished(inventory, node, marker.node))
    return replace(marker, node=node.name, tags=marker.tags or tags)


def _unfinished(inventory: Inventory, node: Node, former: str) -> Diagnostic:
    file = inventory.file or "INVENTORY"
    return Diagnostic(
        "FIRST_CONTACT_UNFINISHED",
        f"first contact with VM {node.vmid} of {node.name}, called {former} then, is not finished",
        node.name,
        source=inventory.source(("nodes", node.name)),
        untouched="Nothing was written.",
        remedy=f"name the node {former} again and run `provision apply {file}`,"
        f" then name it {node.name}, and import it: `provision import {file} {node.name}`",
    )


def marked_config(state: VmState, marker: Marker) -> dict[str, str]:
    """Return description and tags of a VM that carries a marker; what people wrote stays."""
    return {
        "description": markers.write(state.next_value("description"), marker),
        "tags": ";".join(sorted({*split_tags(state.next_value("tags")), TAG})),
    }
