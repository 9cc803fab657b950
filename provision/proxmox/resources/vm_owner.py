"""What is said of a VMID that belongs to something else."""

from __future__ import annotations

from collections.abc import Sequence

from provision.proxmox.marker import TAG, Marker
from provision.proxmox.queries import Elsewhere, VmState
from provision.values.diagnostics import Diagnostic, Source


def taken(
    vmid: int, marker: Marker, state: VmState | Elsewhere, source: Source | None, node: str = "NODE"
) -> Diagnostic:
    """Return the problem of a node whose number belongs to something else.

    Args:
        vmid: the number.
        marker: of the node that declares it.
        state: what has it.
        source: inventory line.
        node: Proxmox node that it is declared on.
    """
    if isinstance(state, VmState) and state.is_unfinished:
        return _unfinished(vmid, marker, state, source)
    if isinstance(state, Elsewhere) and _is_same(state.marker, marker):
        return Diagnostic(
            code="VM_ON_OTHER_NODE",
            summary=f"VM {vmid} of {marker.node} is on node {state.node} of its Proxmox VE cluster now",
            subject=marker.node,
            evidence=tuple(f"device of {state.node}: {key}" for key in state.devices),
            source=source,
            untouched="It was not changed.",
            remedy=f"Write the hypervisor with `node: {state.node}` to `hypervisor` of {marker.node},"
            f" or migrate it on {state.node}: {migration(vmid, node, state.devices)}",
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


def migration(vmid: int, node: str, devices: Sequence[str]) -> str:
    """Return the commands that migrate a VM: its devices of the node first, or Proxmox VE refuses.

    Raw devices hinder any migration, mapped ones that of a running VM. Those that are declared come back with
    the next run.
    """
    if not devices:
        return f"`qm migrate {vmid} {node}`"
    detached = f"`qm shutdown {vmid}`, `qm set {vmid} --delete {','.join(devices)}`"
    return f"{detached}, then `qm migrate {vmid} {node}`"


def _is_same(one: Marker | None, other: Marker) -> bool:
    return one is not None and (one.inventory, one.node) == (other.inventory, other.node)


def _unfinished(vmid: int, marker: Marker, state: VmState, source: Source | None) -> Diagnostic:
    """Return the problem of a VM that is being created, or that somebody else's dead task left."""
    creation = state.creation
    summary = f"VM {vmid} of {marker.node} was never finished: all that it has is the lock `create`"
    remedy = (
        f"Wait until the task that creates it ends (`qm config {vmid}`). If there is none, remove"
        f" what a dead one left: `{removal_of(vmid)}`. Then apply again."
    )
    if creation is not None and creation.running:
        summary = f"VM {vmid} of {marker.node} is being created: its task still runs"
        remedy = "Wait until the task ends, then apply again."
    return Diagnostic(
        code="VM_CREATE_INTERRUPTED",
        summary=summary,
        subject=marker.node,
        evidence=(f"task: {creation.upid}",) if creation is not None else (),
        source=source,
        untouched="It was not changed.",
        remedy=remedy,
    )


def removal_of(vmid: int) -> str:
    """Return the command that removes what a dead creation left: a token cannot pass by the lock.

    The disks that were made already stand in no configuration. `qm` waits for the lock file of a living
    worker, and fails (qemu-server, `PVE/API2/Qemu.pm`, destroy_vm).
    """
    return f"qm destroy {vmid} --skiplock 1 --purge 1 --destroy-unreferenced-disks 1"


def file_of(source: Source | None) -> str:
    """Return the inventory's file, as remedies name it."""
    return source.file if source is not None else "INVENTORY"
