"""First contact with a new VM: cloud-init's end, the final host key, and the end of the first one.

Order: the marker names the key that is about to be installed; the guest gets it; the marker forgets the first
key and the configuration its snippet; the snippet's file goes. A VM that is past this costs no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from provision.contracts.resource import Resource
from provision.contracts.role import Context, Role
from provision.hosts import names as host_names
from provision.hosts.resources.file import File
from provision.hosts.resources.system import HostKey
from provision.inventory import Inventory, Subject
from provision.proxmox import names, snippets
from provision.proxmox.queries import VmConfig, vm_state
from provision.proxmox.resources.guest import KEEP_KEYS, KEPT_KEYS, CloudInitDone, SnippetGone, first_boot
from provision.proxmox.resources.vm_lifecycle import VmMarker
from provision.proxmox.roles.virtual_machine import pair


def declared(inventory: Inventory, subject: Subject) -> bool:
    """Whether the node is a VM that starts from a cloud image."""
    node = inventory.nodes.get(subject.name) if subject.kind == "node" else None
    return node is not None and node.is_virtual and node.manage and node.image is not None


def questions(inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
    """Ask for the VM's marker, the guest's cloud-init, and whether the snippet still lies there."""
    node, hypervisor = pair(inventory, subject)
    return {
        names.api(hypervisor.name): (VmConfig(names.vmid(inventory, node)),),
        host_names.ssh(hypervisor.name): snippets.questions(inventory, hypervisor, node),
        host_names.ssh(node.name): first_boot(),
    }


def resources(context: Context) -> tuple[Resource, ...]:
    """Return what is left to do until the VM's first key is dead."""
    inventory = context.inventory
    node, hypervisor = pair(inventory, context.subject)
    system = names.api(hypervisor.name)
    vmid = names.vmid(inventory, node)
    state = vm_state(context.seen(system), vmid)
    marker = state.marker_of(inventory.name, node.name) if state is not None else None
    source = inventory.source(("nodes", node.name))
    host = host_names.ssh(hypervisor.name)
    path = snippets.path(inventory, hypervisor, node, context.seen(host))
    volume = names.snippet_volume(inventory, hypervisor, node)
    if marker is None:
        return ()  # not there, or not ours: the role `virtual_machine` says so
    gone = SnippetGone(host, path, source=source)
    settled = VmMarker(system, hypervisor.node_name, vmid, marker.settled(), snippet=volume, source=source)
    if not marker.first_key:
        return (settled, gone)
    # The final key's private part died with the run that made it, unless that is this run.
    final = context.generated.host_key(f"final:{node.name}")
    known = [each for each in marker.host_key.split(",") if each]
    offered = replace(marker, host_key=",".join(dict.fromkeys((final.fingerprint, *known))))
    return (
        VmMarker(system, hypervisor.node_name, vmid, offered, stage="offered", source=source),
        CloudInitDone(host_names.ssh(node.name), source=source),
        HostKey(host_names.ssh(node.name), final.private, final.public, source=source),
        File(host_names.ssh(node.name), KEPT_KEYS, KEEP_KEYS, source=source),
        replace(settled, marker=replace(marker.settled(), host_key=final.fingerprint)),
        gone,
    )


ROLE = Role(
    name="first_contact",
    needs=("virtual_machine",),
    declared=declared,
    questions=questions,
    resources=resources,
)
