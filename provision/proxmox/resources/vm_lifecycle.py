"""A VM's power, its marker, and its end."""

from __future__ import annotations

from dataclasses import dataclass, replace

from provision.contracts import common_effects
from provision.contracts.change import Change, Key, Op
from provision.contracts.effect import Effect
from provision.contracts.query import Unknown
from provision.contracts.remedy import ApiCall, Impossible, Request
from provision.contracts.snapshot import Snapshot
from provision.proxmox import vm_effects
from provision.proxmox.marker import START, Marker, write
from provision.proxmox.queries import Elsewhere, VmConfig, VmState, vm_seen, vm_state
from provision.proxmox.tasks import start_timeout
from provision.values.diagnostics import Diagnostic, Source

SHUTDOWN_SECONDS = 120
MARGIN = 60.0
"""Seconds that a task may take beyond what PVE itself allows."""
DELETE_SECONDS = 600.0


def _attention(path: str, state: object, wanted: str) -> tuple[Change, ...]:
    reason = state.reason if isinstance(state, Unknown) else "the VMID belongs to something else"
    return (Change(Op.ATTENTION, path, old=reason, new=wanted),)


@dataclass(frozen=True, slots=True)
class VmPower:
    """A VM runs, or is off; in both cases it owes no start any more.

    The start itself takes the debt out of the marker, whoever asked for it: see ProxmoxDriver.

    Args:
        system: `pve/api`.
        node: node name in Proxmox VE.
        vmid: its number.
        name: node in the inventory.
        wanted: `running` or `stopped`; of a VM that is made anew in this step, as of one that is not there.
        memory: MiB, for the time that a start may take.
        passthrough: whether cards are passed to it.
        console: whether one of them drives the hypervisor's monitor.
        source: inventory line.
    """

    system: str
    node: str
    vmid: int
    name: str
    wanted: str
    memory: int = 0
    passthrough: bool = False
    console: bool = False
    source: Source | None = None

    @property
    def key(self) -> Key:
        """Identity: the node's name."""
        return Key(self.system, "vm-power", self.name)

    def queries(self) -> tuple[VmConfig, ...]:
        """Ask for the VM."""
        return (VmConfig(self.vmid),)

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Compare the status."""
        state = vm_seen(seen, self.vmid)
        if state is None or rebuilds(state):  # what is made anew is made switched off
            return (Change(Op.UPDATE, "power", None, self.wanted),) if self.wanted == "running" else ()
        if not isinstance(state, VmState):
            return _attention("power", state, self.wanted)
        now = "running" if state.running else "stopped"
        found = [] if now == self.wanted else [Change(Op.UPDATE, "power", now, self.wanted)]
        if owes_start(state) and not (found and self.wanted == "running"):
            found.append(Change(Op.DELETE, "owes", START, None))
        return tuple(found)

    def fix(self, seen: Snapshot) -> ApiCall | Impossible:
        """Start it, or shut it down and pull the plug when it does not listen."""
        state = vm_seen(seen, self.vmid)
        if state is not None and (not isinstance(state, VmState) or state.marker is None):
            summary = f"VM {self.vmid} cannot be seen or is not ours"
            return Impossible(Diagnostic("UNKNOWN", summary, self.name, source=self.source))
        settled = self._settled(state) if owes_start(state) and not rebuilds(state) else ()
        if settled and state is not None and state.running is (self.wanted == "running"):
            return ApiCall(settled)
        path = f"/nodes/{self.node}/qemu/{self.vmid}/status"
        if self.wanted == "running":
            risky = self.console and not (state is not None and state.running)
            limit = start_timeout(self.memory, self.passthrough) + MARGIN
            return ApiCall(
                (Request("POST", f"{path}/start", {}, task=limit),),
                risks=(Effect(vm_effects.CONSOLE_LOSS, self.name),) if risky else (),
            )
        data = {"timeout": SHUTDOWN_SECONDS, "forceStop": 1}
        return ApiCall(
            (*settled, Request("POST", f"{path}/shutdown", data, task=SHUTDOWN_SECONDS + MARGIN)),
            risks=(Effect(vm_effects.POWER_CYCLE, self.name),),
        )

    def _settled(self, state: VmState | None) -> tuple[Request, ...]:
        """Return the request that takes the debt out of the marker line."""
        if state is None or state.marker is None:
            return ()
        description = write(state.wanted("description"), replace(state.marker, owes=""))
        data = {"description": description, "digest": state.digest}
        return (Request("PUT", f"/nodes/{self.node}/qemu/{self.vmid}/config", data),)


@dataclass(frozen=True, slots=True)
class VmMarker:
    """The marker line of a VM that is there, and the vendor snippet in its configuration.

    Two stages of one VM may follow each other in one step, so the stage is part of the key.

    Args:
        system: `pve/api`.
        node: node name in Proxmox VE.
        vmid: its number.
        marker: wanted; a replace token that is there stays.
        stage: `offered` before the final host key is installed, `settled` after it.
        snippet: our vendor snippet's volume: taken out of the configuration once settled.
        source: inventory line.
    """

    system: str
    node: str
    vmid: int
    marker: Marker
    stage: str = "settled"
    snippet: str = ""
    source: Source | None = None

    @property
    def key(self) -> Key:
        """Identity: the node's name and the stage."""
        name = self.marker.node if self.stage == "settled" else f"{self.marker.node}:{self.stage}"
        return Key(self.system, "vm-marker", name)

    def queries(self) -> tuple[VmConfig, ...]:
        """Ask for the VM."""
        return (VmConfig(self.vmid),)

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Compare marker and snippet."""
        state = vm_seen(seen, self.vmid)
        if state is None:
            return (Change(Op.CREATE, "host-key", None, self.marker.host_key or None),)
        now = state.marker_of(self.marker.inventory, self.marker.node) if isinstance(state, VmState) else None
        if not isinstance(state, VmState) or now is None:
            return _attention("marker", state, self.marker.node)
        found: list[Change] = []
        if self.stage == "offered" and set(now.host_key.split(",")) & set(
            self.marker.host_key.split(",")[:1]
        ):
            return ()
        pairs = {
            "host-key": (now.host_key, self.marker.host_key),
            "first-key": (now.first_key, self.marker.first_key),
        }
        for path, (old, new) in pairs.items():
            if old != new:
                op = Op.DELETE if not new else Op.CREATE if not old else Op.UPDATE
                found.append(Change(op, path, old or None, new or None))
        if self._has_snippet(state):
            found.append(Change(Op.DELETE, "cicustom", state.wanted("cicustom"), None))
        return tuple(found)

    def fix(self, seen: Snapshot) -> ApiCall | Impossible:
        """Write the description; the rest of it stays."""
        state = vm_state(seen, self.vmid)
        now = state.marker_of(self.marker.inventory, self.marker.node) if state is not None else None
        if state is not None and now is None:
            summary = f"VM {self.vmid} does not carry the marker of {self.marker.node}"
            return Impossible(Diagnostic("VMID_TAKEN_FOREIGN", summary, self.marker.node, source=self.source))
        description = state.wanted("description") if state is not None else ""
        marker = self.marker
        if now is not None:
            marker = replace(marker, replace=now.replace or marker.replace, owes=now.owes)
        data: dict[str, object] = {"description": write(description, marker)}
        if state is not None:
            data["digest"] = state.digest
            if self._has_snippet(state):
                data["delete"] = "cicustom"
        return ApiCall((Request("PUT", f"/nodes/{self.node}/qemu/{self.vmid}/config", data),))

    def _has_snippet(self, state: VmState) -> bool:
        return bool(self.snippet) and self.snippet in state.wanted("cicustom")


@dataclass(frozen=True, slots=True)
class VmAbsent:
    """A VM of ours and its disks are gone; what does not carry our marker is left alone.

    Args:
        system: `pve/api`.
        node: node name in Proxmox VE.
        vmid: its number.
        marker: whose it must be.
        source: inventory line.
        label: how it is called instead of by its node, where that is not told apart.
    """

    system: str
    node: str
    vmid: int
    marker: Marker
    source: Source | None = None
    label: str = ""

    @property
    def key(self) -> Key:
        """Identity: the node's name, the same as the VM's."""
        return Key(self.system, "vm", self.label or self.marker.node)

    def queries(self) -> tuple[VmConfig, ...]:
        """Ask for the VM."""
        return (VmConfig(self.vmid),)

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Return the removal, if it is there and ours."""
        state = vm_seen(seen, self.vmid)
        if isinstance(state, Unknown):
            return _attention("vm", state, "absent")
        if not isinstance(state, VmState) or state.marker_of(self.marker.inventory, self.marker.node) is None:
            return ()
        return (Change(Op.DELETE, "vm", f"VM {self.vmid} with its disks", None),)

    def fix(self, seen: Snapshot) -> ApiCall | Impossible:
        """Pull the plug and delete VM and disks."""
        state = vm_state(seen, self.vmid)
        if state is None or state.marker_of(self.marker.inventory, self.marker.node) is None:
            summary = f"VM {self.vmid} is not ours"
            return Impossible(Diagnostic("VMID_TAKEN_FOREIGN", summary, self.marker.node, source=self.source))
        removal = remove(self.node, state, self.marker.node, self.source)
        if isinstance(removal, Impossible):
            return removal
        return ApiCall(removal, risks=(Effect(common_effects.DELETE, self.marker.node),))


def remove(node: str, state: VmState, name: str, source: Source | None) -> tuple[Request, ...] | Impossible:
    """Return the requests that pull a VM's plug and delete it with its disks; nothing for a protected one.

    Args:
        node: node name in Proxmox VE.
        state: the VM as it is.
        name: node in the inventory.
        source: inventory line.
    """
    if state.wanted("protection") == "1":
        return Impossible(
            Diagnostic(
                "VM_PROTECTED",
                f"VM {state.vmid} is protected: Proxmox VE refuses to remove it",
                name,
                source=source,
                remedy=f"qm set {state.vmid} --protection 0",
            )
        )
    path = f"/nodes/{node}/qemu/{state.vmid}"
    stop = (Request("POST", f"{path}/status/stop", {}, task=MARGIN * 2),) if state.running else ()
    # Disks that its configuration does not name stay: on a shared storage they may be another cluster's.
    return (*stop, Request("DELETE", path, {"purge": 1}, task=DELETE_SECONDS))


def rebuilds(state: VmState | Elsewhere | Unknown | None) -> bool:
    """Whether `provision rebuild` asked for a VM to be made anew."""
    return isinstance(state, VmState) and state.marker is not None and bool(state.marker.replace)


def owes_start(state: VmState | Elsewhere | Unknown | None) -> bool:
    """Whether a power cycle of a VM was cut off before its start was done."""
    return isinstance(state, VmState) and state.marker is not None and state.marker.owes == START
