"""What is said of a VMID that belongs to something else."""

from __future__ import annotations

from provision.proxmox.marker import TAG, Marker
from provision.proxmox.queries import Elsewhere, VmState
from provision.values.diagnostics import Diagnostic, Source


def taken(vmid: int, marker: Marker, state: VmState | Elsewhere, source: Source | None) -> Diagnostic:
    """Return the problem of a node whose number belongs to something else.

    Args:
        vmid: the number.
        marker: of the node that declares it.
        state: what has it.
        source: inventory line.
    """
    if isinstance(state, VmState) and is_unfinished(state):
        return Diagnostic(
            code="VM_CREATE_INTERRUPTED",
            summary=f"VM {vmid} of {marker.node} was never finished: all that it has is the lock `create`",
            subject=marker.node,
            source=source,
            untouched="It was not changed.",
            remedy=f"Wait until the task that creates it ends (`qm config {vmid}`). If there is none, remove"
            f" what a dead one left: `qm destroy {vmid} --skiplock --purge --destroy-unreferenced-disks 1`."
            " Then apply again.",
        )
    if isinstance(state, Elsewhere) and _is_same(state.marker, marker):
        return Diagnostic(
            code="VM_ON_OTHER_NODE",
            summary=f"VM {vmid} of {marker.node} is on node {state.node} of its Proxmox VE cluster now",
            subject=marker.node,
            source=source,
            untouched="It was not changed.",
            remedy=f"Write the hypervisor with `node: {state.node}` to `hypervisor` of {marker.node},"
            f" or migrate it back on {state.node}: `qm migrate {vmid} NODE`",
        )
    adopt = f"take the VM over: `provision import {file_of(source)} {marker.node}`"
    present = state.marker if isinstance(state, VmState) else None
    remedy = f"Give {marker.node} another vmid"
    if present is not None and present.inventory == marker.inventory:
        remedy += f", or, if {present.node} is called {marker.node} now, {adopt}"
    elif present is not None:
        remedy += (
            f", or take the line `provision: ...` out of its notes and its tag `{TAG}` off"
            f" (`qm config {vmid}`), then {adopt}"
        )
    elif isinstance(state, VmState):
        remedy += f", or {adopt}"
    return Diagnostic(
        code="VMID_TAKEN_FOREIGN",
        summary=f"VMID {vmid} of {marker.node} belongs to {state.owner}",
        subject=marker.node,
        source=source,
        untouched="It was not changed.",
        remedy=remedy,
    )


def _is_same(one: Marker | None, other: Marker) -> bool:
    return one is not None and (one.inventory, one.node) == (other.inventory, other.node)


def is_unfinished(state: VmState) -> bool:
    """Whether all of a VM is the lock of its creation: the configuration is written when the task ends."""
    return state.lock == "create" and set(state.config) <= {"lock"}


def file_of(source: Source | None) -> str:
    """Return the inventory's file, as remedies name it."""
    return source.file if source is not None else "INVENTORY"
