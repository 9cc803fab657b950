"""A VM's power, its marker, and its end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from provision.contracts import common_effects
from provision.contracts.change import Change, Op
from provision.contracts.effect import Effect
from provision.contracts.remedy import ApiCall, Impossible, Request
from provision.contracts.resource import KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.proxmox import vm_effects
from provision.proxmox.marker import START, Marker, write
from provision.proxmox.queries import Elsewhere, VmConfig, VmState
from provision.proxmox.tasks import start_timeout
from provision.values.diagnostics import Diagnostic, Source

SHUTDOWN_SECONDS = 120
MARGIN = 60.0
"""Seconds that a task may take beyond what PVE itself allows."""
DELETE_SECONDS = 600.0


State = VmState | Elsewhere | None
"""What has a VM's number: a VM of this node, something else, or nothing."""


@dataclass(frozen=True, slots=True)
class VmResource(KeyedResource):
    """What the resources of one VM share.

    Args:
        node: node name in Proxmox VE.
        vmid: its number.
        reclaims: what a dead creation of ours left is removed before, so that the number is free.
    """

    node: str
    vmid: int
    reclaims: bool = field(default=False, kw_only=True)

    @property
    def path(self) -> str:
        """API path of the VM."""
        return f"/nodes/{self.node}/qemu/{self.vmid}"

    def queries(self) -> tuple[VmConfig, ...]:
        """Ask for the VM."""
        return (VmConfig(self.vmid),)

    def _state(self, snapshot: Snapshot) -> State:
        return self.present(snapshot[VmConfig(self.vmid)])

    def present(self, state: State) -> State:
        """Return what has the number; None, too, for what is removed before."""
        return None if self.reclaims and isinstance(state, VmState) and state.is_abandoned else state


def _taken(path: str, desired: str) -> tuple[Change, ...]:
    return (Change(Op.ATTENTION, path, old="the VMID belongs to something else", new=desired),)


@dataclass(frozen=True, slots=True)
class VmPower(VmResource):
    """A VM is running or stopped, and its marker notes no start that is still due.

    ProxmoxDriver removes that note from the marker after every start.

    Args:
        name: node in the inventory.
        desired: `running` or `stopped`; of a VM that this step replaces, as of one that is not there.
        memory: MiB, for the time that a start may take.
        passthrough: whether cards are passed to it.
        console: whether one of them drives the hypervisor's monitor.
        companions: functions with a driver of the host that go along with its cards.
    """

    kind: ClassVar[str] = "vm-power"

    name: str
    desired: str
    memory: int = 0
    passthrough: bool = False
    console: bool = False
    companions: tuple[str, ...] = ()

    def _key_name(self) -> str:
        return self.name

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Compare the status."""
        state = self._state(snapshot)
        if state is None or rebuilds(state):  # a replaced VM is created switched off
            return (Change(Op.UPDATE, "power", None, self.desired),) if self.desired == "running" else ()
        if not isinstance(state, VmState):
            return _taken("power", self.desired)
        status = "running" if state.running else "stopped"
        changes = [] if status == self.desired else [Change(Op.UPDATE, "power", status, self.desired)]
        if owes_start(state) and not (changes and self.desired == "running"):
            changes.append(Change(Op.DELETE, "owes", START, None))
        return tuple(changes)

    def fix(self, snapshot: Snapshot, /) -> ApiCall | Impossible:
        """Start it, or shut it down and pull the plug when it does not listen."""
        state = self._state(snapshot)
        if state is not None and (not isinstance(state, VmState) or state.marker is None):
            return self._refused("UNKNOWN", f"VM {self.vmid} is not ours", subject=self.name)
        settled = self._settled(state) if owes_start(state) and not rebuilds(state) else ()
        if settled and state is not None and state.running is (self.desired == "running"):
            return ApiCall(settled)
        if self.desired == "running":
            starts = not (state is not None and state.running)
            risks = [Effect(vm_effects.DEVICE_LOSS, function) for function in self.companions]
            risks += [Effect(vm_effects.CONSOLE_LOSS, self.name)] if self.console else []
            limit = start_timeout(self.memory, self.passthrough) + MARGIN
            return ApiCall(
                (Request("POST", f"{self.path}/status/start", {}, task=limit),),
                risks=tuple(risks) if starts else (),
            )
        data = {"timeout": SHUTDOWN_SECONDS, "forceStop": 1}
        shutdown = Request("POST", f"{self.path}/status/shutdown", data, task=SHUTDOWN_SECONDS + MARGIN)
        return ApiCall((*settled, shutdown), risks=(Effect(vm_effects.POWER_CYCLE, self.name),))

    def _settled(self, state: VmState | None) -> tuple[Request, ...]:
        """Return the request that removes the due start from the marker line."""
        if state is None or state.marker is None:
            return ()
        description = write(state.next_value("description"), replace(state.marker, owes=""))
        data = {"description": description, "digest": state.digest}
        return (Request("PUT", f"{self.path}/config", data),)


@dataclass(frozen=True, slots=True)
class VmMarker(VmResource):
    """The marker line of a VM that is there, and the vendor snippet in its configuration.

    Two stages of one VM may follow each other in one step, so the stage is part of the key.

    Args:
        marker: as it should be; a replace token that is there stays.
        stage: `offered` before the final host key is installed, `settled` after it.
        snippet: our vendor snippet's volume: taken out of the configuration once settled.
    """

    kind: ClassVar[str] = "vm-marker"

    marker: Marker
    stage: str = "settled"
    snippet: str = ""

    def _key_name(self) -> str:
        return self.marker.node if self.stage == "settled" else f"{self.marker.node}:{self.stage}"

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Compare marker and snippet."""
        state = self._state(snapshot)
        if state is None:
            return (Change(Op.CREATE, "host-key", None, self.marker.host_key or None),)
        present = own_marker(state, self.marker)
        if not isinstance(state, VmState) or present is None:
            return _taken("marker", self.marker.node)
        declared = self.marker.host_key.split(",")[:1]
        if self.stage == "offered" and set(present.host_key.split(",")) & set(declared):
            return ()
        changes: list[Change] = []
        for path, old, new in (
            ("host-key", present.host_key, self.marker.host_key),
            ("first-key", present.first_key, self.marker.first_key),
        ):
            if old != new:
                op = Op.DELETE if not new else Op.CREATE if not old else Op.UPDATE
                changes.append(Change(op, path, old or None, new or None))
        if self._has_snippet(state):
            changes.append(Change(Op.DELETE, "cicustom", state.next_value("cicustom"), None))
        return tuple(changes)

    def fix(self, snapshot: Snapshot, /) -> ApiCall | Impossible:
        """Write the description; the rest of it stays."""
        state = self._state(snapshot)
        present = own_marker(state, self.marker)
        if state is not None and (not isinstance(state, VmState) or present is None):
            summary = f"VM {self.vmid} does not carry the marker of {self.marker.node}"
            return self._refused("VMID_TAKEN_FOREIGN", summary, subject=self.marker.node)
        marker = self.marker
        if present is not None:
            token = present.replace or marker.replace
            marker = replace(marker, replace=token, owes=present.owes, tags=present.tags)
        data: dict[str, object] = {"description": write("", marker)}
        if state is not None:
            data = {"description": write(state.next_value("description"), marker), "digest": state.digest}
            if self._has_snippet(state):
                data["delete"] = "cicustom"
        return ApiCall((Request("PUT", f"{self.path}/config", data),))

    def _has_snippet(self, state: VmState) -> bool:
        return bool(self.snippet) and self.snippet in state.next_value("cicustom")


@dataclass(frozen=True, slots=True)
class VmAbsent(VmResource):
    """A managed VM and its disks are removed; a VM without our marker is left alone.

    Args:
        marker: whose it must be.
        label: its name in the key instead of the node, where two VMs of one node are removed.
    """

    kind: ClassVar[str] = "vm"

    marker: Marker
    label: str = ""

    def _key_name(self) -> str:
        return self.label or self.marker.node

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return the removal, if it is there and ours."""
        state = self._state(snapshot)
        if not isinstance(state, VmState) or own_marker(state, self.marker) is None:
            return ()
        last = state.config.get("parent", "")
        kept = f" and snapshots (the last one is {last})" if last else ""
        return (Change(Op.DELETE, "vm", f"VM {self.vmid} with its disks{kept}", None),)

    def fix(self, snapshot: Snapshot, /) -> ApiCall | Impossible:
        """Pull the plug and delete VM and disks."""
        state = self._state(snapshot)
        if not isinstance(state, VmState) or own_marker(state, self.marker) is None:
            summary = f"VM {self.vmid} is not ours"
            return self._refused("VMID_TAKEN_FOREIGN", summary, subject=self.marker.node)
        removal = remove(self.node, state, self.marker.node, self.source)
        if isinstance(removal, Impossible):
            return removal
        return ApiCall(removal, risks=(Effect(common_effects.DELETE, self.marker.node),))


def own_marker(state: State, marker: Marker) -> Marker | None:
    """Return the marker of a VM that belongs to the same node of the same inventory."""
    return state.marker_of(marker.inventory, marker.node) if isinstance(state, VmState) else None


def stopped(node: str, state: VmState, name: str, source: Source | None) -> tuple[Request, ...] | Impossible:
    """Return the request that pulls a VM's plug, if it runs; a protected VM keeps its disks.

    Args:
        node: node name in Proxmox VE.
        state: the VM as it is.
        name: node in the inventory.
        source: inventory line.
    """
    if state.next_value("protection") == "1":
        return Impossible(
            Diagnostic(
                "VM_PROTECTED",
                f"VM {state.vmid} is protected: Proxmox VE refuses to remove it or its disks",
                name,
                source=source,
                remedy=f"take the protection off: `qm set {state.vmid} --protection 0`",
            )
        )
    path = f"/nodes/{node}/qemu/{state.vmid}"
    return (Request("POST", f"{path}/status/stop", {}, task=MARGIN * 2),) if state.running else ()


def remove(node: str, state: VmState, name: str, source: Source | None) -> tuple[Request, ...] | Impossible:
    """Return the requests that pull a VM's plug and delete it with its disks; see `stopped`."""
    stop = stopped(node, state, name, source)
    if isinstance(stop, Impossible):
        return stop
    path = f"/nodes/{node}/qemu/{state.vmid}"
    # Disks that its configuration does not name stay: on a shared storage they may be another cluster's.
    return (*stop, Request("DELETE", path, {"purge": 1}, task=DELETE_SECONDS))


def rebuilds(state: State) -> bool:
    """Whether `provision rebuild` asked for a replacement of a VM."""
    return isinstance(state, VmState) and state.marker is not None and bool(state.marker.replace)


def owes_start(state: State) -> bool:
    """Whether a power cycle of a VM was interrupted before its start."""
    return isinstance(state, VmState) and state.marker is not None and state.marker.owes == START
