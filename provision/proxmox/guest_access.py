"""How a VM is reached: by what its hypervisor's API says of it."""

from __future__ import annotations

from collections.abc import Mapping

from provision.connections.contracts import Endpoint
from provision.contracts.query import Unknown
from provision.contracts.snapshot import Snapshot
from provision.contracts.system import NotThere, SystemSpec
from provision.hosts import names as host_names
from provision.hosts.systems import login_key, ssh_endpoint
from provision.inventory import Inventory
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node
from provision.proxmox import names
from provision.proxmox.marker import START
from provision.proxmox.queries import Elsewhere, VmConfig, VmState, vm_answer

BOOT_SECONDS = 600.0
"""How long a booting guest is waited for: emulated ones take minutes."""
SETTLED_SECONDS = 20.0
"""How long one that must have booted by now is waited for."""


def guest(inventory: Inventory, hypervisor: Hypervisor, node: Node) -> SystemSpec:
    """Return the system of a VM."""
    system = names.api(hypervisor.name)
    questions = {system: (VmConfig(node.vmid),)} if node.vmid is not None else {}

    def endpoint(snapshots: Mapping[str, Snapshot]) -> Endpoint | NotThere:
        return guest_endpoint(inventory, node, snapshots.get(system, Snapshot(system)))

    credentials = (login_key(inventory, node.name),)
    return SystemSpec(
        host_names.ssh(node.name), "host", node.name, questions, endpoint, credentials=credentials
    )


def guest_endpoint(inventory: Inventory, node: Node, snapshot: Snapshot) -> Endpoint | NotThere:
    """Return how a VM is reached: its host keys stand in its own marker, nothing else is accepted."""
    state = vm_answer(snapshot, names.vmid(inventory, node))
    if state is None:
        return NotThere(f"{node.name} does not exist yet", absent=True)
    if isinstance(state, Unknown):
        return NotThere(f"unknown whether {node.name} exists: {state.reason}", late=False)
    marker = state.marker_of(inventory.name, node.name) if isinstance(state, VmState) else None
    if marker is None or isinstance(state, Elsewhere):
        return NotThere(f"VMID {node.vmid} of {node.name} belongs to {state.owner}", late=False)
    if not state.running:
        return _off(node, by_hand=not marker.first_key and marker.owes != START)
    # A guest that has been up for long is not waited for as if it booted.
    wait = max(SETTLED_SECONDS, BOOT_SECONDS - state.uptime)
    return ssh_endpoint(inventory.login(node.name), marker.fingerprints, wait)


def _off(node: Node, *, by_hand: bool) -> NotThere:
    """Return why a VM that is off is not there; one that a run of ours left off is started."""
    if node.power_state == "stopped":
        return NotThere(f"{node.name} is off, as declared", late=False, excused=True)
    if node.power_state == "unmanaged" and by_hand:
        return NotThere(f"{node.name} is off by hand", late=False, excused=True)
    return NotThere(f"{node.name} is off")
