"""A virtual machine: desired and seen configuration compared by meaning, part by part.

What is unset is unmanaged. Create-only: cloud-init user, keys and name. A power cycle applies pending keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote

from provision.contracts import common_effects
from provision.contracts.change import Change, Op, Settles
from provision.contracts.effect import Effect
from provision.contracts.remedy import ApiCall, Impossible, Request
from provision.contracts.snapshot import Snapshot
from provision.proxmox import formats, vm_effects
from provision.proxmox.answers import tags as split_tags
from provision.proxmox.formats import Format, join, normal, size_gib
from provision.proxmox.marker import TAG, Marker
from provision.proxmox.queries import Elsewhere, VmState
from provision.proxmox.resources.vm_lifecycle import State, VmResource, own_marker, rebuilds, remove
from provision.proxmox.resources.vm_parts import GIB, CloudInit, Drive, Efi, Nic, Passed, Tpm
from provision.values.diagnostics import Diagnostic, Source

CREATE_SECONDS = 1800.0
RESIZE_SECONDS = 300.0
_LIVE = frozenset({"onboot", "protection", "startup", "tags", "description", "name"})
_LIVE_PREFIXES = ("net", "scsi", "virtio")
_DEFAULTS = {
    "cores": "1",
    "sockets": "1",
    "onboot": "0",
    "numa": "0",
    "protection": "0",
    "bios": "seabios",
    "scsihw": "lsi",
    "ostype": "other",
}
_FORMATS: Mapping[str, Format] = {
    "cpu": formats.CPU,
    "memory": formats.MEMORY,
    "agent": formats.AGENT,
    "startup": formats.STARTUP,
}


@dataclass(frozen=True, slots=True)
class Vm(VmResource):
    """A VM with its configuration.

    Args:
        name: name of the node in the inventory; the VM's name at creation.
        marker: whose it is; written at creation, kept afterwards by VmMarker.
        settings: managed keys and their values as PVE takes them; an empty machine is i440fx.
        nics: network devices `net0`, `net1`...
        drives: disks.
        passed: cards `hostpci0`, ...
        efi: disk of OVMF's variables.
        tpm: emulated TPM.
        tags: further tags besides `provision`; other tags are kept.
        cloud_init: what the guest is born with.
        pool: pool at creation.
        mapping_prefix: mappings of ours; such an entry that is not in `passed` is taken away.
    """

    kind: ClassVar[str] = "vm"

    name: str
    marker: Marker
    settings: tuple[tuple[str, str], ...] = ()
    nics: tuple[Nic, ...] = ()
    drives: tuple[Drive, ...] = ()
    passed: tuple[Passed, ...] = ()
    efi: Efi | None = None
    tpm: Tpm | None = None
    tags: tuple[str, ...] = ()
    cloud_init: CloudInit | None = None
    pool: str = ""
    mapping_prefix: str = ""

    def _key_name(self) -> str:
        return self.name

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return what differs, field by field."""
        state = self._state(snapshot)
        if state is None:
            return self._creation()
        if isinstance(state, Elsewhere) or own_marker(state, self.marker) is None:
            return (Change(Op.ATTENTION, "vm", old=self._taken(state).summary, new=str(self.vmid)),)
        if rebuilds(state):
            disks = "from its image" if any(drive.image for drive in self.drives) else "with empty disks"
            return (
                Change(Op.REPLACE, "vm", f"VM {self.vmid} with its disks", f"a new VM {self.vmid} {disks}"),
            )
        return tuple(difference.change(state) for difference in self._differences(state))

    def fix(self, snapshot: Snapshot, /) -> ApiCall | Impossible:
        """Return the requests that create or change it."""
        state = self._state(snapshot)
        if state is None:
            return ApiCall(self._create_requests(), births=self.name)
        if isinstance(state, Elsewhere) or own_marker(state, self.marker) is None:
            return Impossible(self._taken(state))
        return self._replacement(state) if rebuilds(state) else self._update(state)

    def foreign(self, state: State) -> Diagnostic | None:
        """Return the problem when the number belongs to something that is not this node's VM."""
        return None if state is None or own_marker(state, self.marker) is not None else self._taken(state)

    def _taken(self, state: VmState | Elsewhere) -> Diagnostic:
        return taken(self.vmid, self.marker, state, self.source)

    # ------------------------------------------------------------ creation

    def _creation(self) -> tuple[Change, ...]:
        shown: dict[str, object] = {"vm": f"VM {self.vmid} on {self.node}"}
        shown.update({key: value for key, value in self.settings if value})
        for at, nic in enumerate(self.nics):
            shown[f"net{at}"] = nic.text(nic.wanted())
        if self.efi is not None:
            shown["efidisk0"] = self.efi.new()
        for drive in self.drives:
            image = f" from {drive.image}" if drive.image else ""
            shown[drive.slot] = f"{drive.size // GIB}GiB on {drive.storage}{image}"
        for at, card in enumerate(self.passed):
            shown[f"hostpci{at}"] = card.text()
        return tuple(Change(Op.CREATE, path, None, value) for path, value in shown.items())

    def _create_requests(self) -> tuple[Request, ...]:
        data: dict[str, object] = {"vmid": self.vmid, "name": self.name, "description": str(self.marker)}
        data.update({"ostype": "l26", "scsihw": "virtio-scsi-single", "serial0": "socket"})
        data.update({key: value for key, value in self.settings if value})
        data["tags"] = ";".join(sorted({TAG, *self.tags}))
        for at, nic in enumerate(self.nics):
            data[f"net{at}"] = nic.text(nic.wanted())
        for drive in self.drives:
            data[drive.slot] = drive.new()
        if self.drives:
            data["boot"] = f"order={self.drives[0].slot}"
        if self.efi is not None:
            data["efidisk0"] = self.efi.new()
        if self.tpm is not None:
            data["tpmstate0"] = self.tpm.new()
        for at, card in enumerate(self.passed):
            data[f"hostpci{at}"] = card.text()
        if self.pool:
            data["pool"] = self.pool
        data.update(self._cloud_init())
        requests = [Request("POST", f"/nodes/{self.node}/qemu", data, task=CREATE_SECONDS)]
        requests += [self._resize(each) for each in self.drives if each.image and each.size]
        return tuple(requests)

    def _replacement(self, state: VmState) -> ApiCall | Impossible:
        """Return its removal and its creation; what dies between the two is a VM that is not there."""
        removal = remove(self.node, state, self.name, self.source)
        if isinstance(removal, Impossible):
            return removal
        risks = (Effect(common_effects.REPLACE, self.name),)
        return ApiCall((*removal, *self._create_requests()), risks=risks, births=self.name)

    def _cloud_init(self) -> dict[str, object]:
        born = self.cloud_init
        if born is None:
            return {}
        data: dict[str, object] = {
            "ide2": f"{born.storage}:cloudinit",
            "ciuser": born.user,
            "ciupgrade": 0,
            "ipconfig0": "ip=dhcp",
        }
        if born.keys:
            data["sshkeys"] = quote(born.keys.strip(), safe="")
        if born.vendor:
            data["cicustom"] = f"vendor={born.vendor}"
        return data

    def _resize(self, drive: Drive) -> Request:
        return Request(
            "PUT",
            f"{self.path}/resize",
            {"disk": drive.slot, "size": f"{drive.size // GIB}G"},
            task=RESIZE_SECONDS,
        )

    # ------------------------------------------------------------ differences

    def _differences(self, state: VmState) -> list[_Difference]:
        found: list[_Difference] = []
        for key, wanted in self.settings:
            found += _setting(key, wanted, state)
        for at, nic in enumerate(self.nics):
            found += _nic(f"net{at}", nic, state)
        found += self._cards(state)
        found += self._disks(state)
        missing = sorted({TAG, *self.tags} - set(split_tags(state.wanted("tags"))))
        if missing:
            old = state.wanted("tags")
            new = ";".join(sorted({*split_tags(old), *missing}))
            found.append(_Difference("tags", "tags", old, new, write=new))
        return found

    def _cards(self, state: VmState) -> list[_Difference]:
        slots = sorted(
            (key for key in {*state.config, *state.pending} if key.startswith("hostpci")),
            key=lambda each: int(each.removeprefix("hostpci") or 0),
        )
        there = {slot: normal(state.wanted(slot), formats.HOSTPCI) for slot in slots if state.wanted(slot)}
        found: list[_Difference] = []
        free = [f"hostpci{at}" for at in range(16) if f"hostpci{at}" not in there]
        for card in self.passed:
            slot = next((each for each, parts in there.items() if card.is_meant_by(parts)), None)
            if slot is not None:
                found += _pending_only(slot, state)
                continue
            slot = next((each for each, parts in there.items() if parts.get("mapping") == card.mapping), None)
            slot = slot or free.pop(0)
            old = state.wanted(slot) or None
            found.append(_Difference(slot, slot, old, card.text(), write=card.text()))
        names = {card.mapping for card in self.passed}
        for slot, parts in there.items():
            name = parts.get("mapping", "")
            if self.mapping_prefix and name.startswith(self.mapping_prefix) and name not in names:
                found.append(_Difference(slot, slot, state.wanted(slot), None, write=None))
        return found

    def _disks(self, state: VmState) -> list[_Difference]:
        found: list[_Difference] = []
        if self.efi is not None:
            found += _fixed("efidisk0", self.efi.new(), formats.EFIDISK, "pre-enrolled-keys", state)
        if self.tpm is not None:
            found += _fixed("tpmstate0", self.tpm.new(), formats.TPMSTATE, "version", state)
        for drive in self.drives:
            text = state.wanted(drive.slot)
            if not text:
                found.append(_Difference(drive.slot, drive.slot, None, drive.new(), write=drive.new()))
                continue
            parts = normal(text, formats.DRIVE)
            size, wanted = size_gib(parts.get("size", "")), drive.size // GIB
            path = f"{drive.slot}.size"
            if wanted and size < wanted:
                found.append(_Difference(drive.slot, path, f"{size:g}GiB", f"{wanted}GiB", grow=drive))
            elif wanted and size > wanted:
                found.append(_Difference(drive.slot, path, f"{size:g}GiB", f"{wanted}GiB", never="shrink"))
            different = {key: value for key, value in drive.declared if parts.get(key, "0") != value}
            for key, value in different.items():
                new = join({**formats.parse(text), **different})
                old = parts.get(key)
                found.append(_Difference(drive.slot, f"{drive.slot}.{key}", old, value, write=new))
        return found

    # ------------------------------------------------------------ update

    def _update(self, state: VmState) -> ApiCall | Impossible:
        differences = self._differences(state)
        never = [difference for difference in differences if difference.never]
        if never:
            return Impossible(self._never(never[0]))
        data: dict[str, object] = {}
        gone: list[str] = []
        for difference in differences:
            if difference.owed or difference.grow is not None:
                continue
            if difference.write is None:
                gone.append(difference.key)
            else:
                data[difference.key] = difference.write
        requests: list[Request] = []
        if gone:
            data["delete"] = ",".join(sorted(set(gone)))
        if data:
            data["digest"] = state.digest
            requests.append(Request("PUT", f"{self.path}/config", data))
        requests += [
            self._resize(difference.grow) for difference in differences if difference.grow is not None
        ]
        cold = any(difference.change(state).settles is Settles.AFTER_EFFECT for difference in differences)
        effects = (Effect(vm_effects.POWER_CYCLE, self.name),) if cold else ()
        return ApiCall(tuple(requests), effects=effects)

    def _never(self, difference: _Difference) -> Diagnostic:
        shrink = difference.never == "shrink"
        return Diagnostic(
            code="DISK_SHRINK" if shrink else "DISK_FIXED",
            summary=f"{self.name}: {difference.path} is {difference.old} and cannot become {difference.new}",
            subject=self.name,
            source=self.source,
            untouched="The VM was left as it is.",
            remedy="Write the larger size to the inventory: disks only grow."
            if shrink
            else f"Write what it is to the inventory, or make the VM anew:"
            f" provision rebuild {_file(self.source)} {self.name}",
        )


def taken(vmid: int, wanted: Marker, state: VmState | Elsewhere, source: Source | None) -> Diagnostic:
    """Return the problem of a node whose number belongs to something else.

    Args:
        vmid: the number.
        wanted: whose it should be.
        state: what has it.
        source: inventory line.
    """
    over = f"take the VM over: provision import {_file(source)} {wanted.node}"
    marker = state.marker if isinstance(state, VmState) else None
    remedy = f"Give {wanted.node} another vmid"
    if marker is not None and marker.inventory == wanted.inventory:
        remedy += f", or, if {marker.node} is called {wanted.node} now, {over}"
    elif marker is not None:
        remedy += f", or take the line `provision: ...` out of its notes (qm config {vmid}), then {over}"
    elif isinstance(state, VmState):
        remedy += f", or {over}"
    return Diagnostic(
        code="VMID_TAKEN_FOREIGN",
        summary=f"VMID {vmid} of {wanted.node} belongs to {state.owner}",
        subject=wanted.node,
        source=source,
        untouched="It was left as it is.",
        remedy=remedy,
    )


def _file(source: Source | None) -> str:
    return source.file if source is not None else "INVENTORY"


@dataclass(frozen=True, slots=True)
class _Difference:
    """One field that is not as wanted.

    Args:
        key: configuration key.
        path: what the user reads.
        old: value seen.
        new: value wanted.
        write: what the key becomes; None deletes it.
        owed: the value waits already for a power cycle: nothing is written.
        grow: the disk that is grown.
        never: why it cannot be mended, or empty.
    """

    key: str
    path: str
    old: object
    new: object
    write: str | None = None
    owed: bool = False
    grow: Drive | None = None
    never: str = ""

    def change(self, state: VmState) -> Change:
        """Return it as the plan shows it."""
        if self.never:
            return Change(Op.ATTENTION, self.path, self.old, self.new)
        live = self.key in _LIVE or self.key.startswith(_LIVE_PREFIXES)
        cold = state.running and (self.owed or not live)
        settles = Settles.AFTER_EFFECT if cold else Settles.NOW
        op = Op.CREATE if self.old is None else Op.DELETE if self.new is None else Op.UPDATE
        return Change(op, self.path, self.old, self.new, settles)


def _pending_only(key: str, state: VmState) -> list[_Difference]:
    """Return the owed difference of a key whose value is right but waits for a power cycle."""
    if key not in state.pending:
        return []
    return [_Difference(key, key, state.config.get(key), state.pending[key], owed=True)]


def _setting(key: str, wanted: str, state: VmState) -> list[_Difference]:
    seen = state.wanted(key)
    if not _same(key, wanted, seen, state):
        old = seen or _DEFAULTS.get(key)
        write = _merged(key, wanted, seen) if wanted else None
        return [_Difference(key, key, old, wanted or "i440fx", write=write)]
    if _same(key, wanted, state.config.get(key, ""), state):
        return []
    return _pending_only(key, state)


def _same(key: str, wanted: str, seen: str, state: VmState) -> bool:
    if key == "machine":
        return ("q35" in wanted) == ("q35" in normal(seen, formats.MACHINE)["type"])
    if key == "balloon":
        memory = normal(state.wanted("memory"), formats.MEMORY)["current"]
        return wanted == (seen or memory)
    form = _FORMATS.get(key)
    if form is None:
        return wanted == (seen or _DEFAULTS.get(key, ""))
    want, have = formats.explicit(wanted, form), normal(seen, form)
    return all(have.get(name) == value for name, value in want.items())


def _merged(key: str, wanted: str, seen: str) -> str:
    """Return the value to write: what is wanted over what is there, so that unmanaged parts stay."""
    form = _FORMATS.get(key)
    if form is None:
        return wanted
    old, new = formats.explicit(seen, form), formats.explicit(wanted, form)
    return join({**old, **new}) if set(old) - set(new) else wanted


def _nic(key: str, nic: Nic, state: VmState) -> list[_Difference]:
    text = state.wanted(key)
    want = nic.wanted()
    if not text:
        return [_Difference(key, key, None, nic.text(want), write=nic.text(want))]
    have = normal(text, formats.NET)
    different = [name for name, value in want.items() if have.get(name) != value]
    write = nic.text({**formats.explicit(text, formats.NET), **want})
    found = [_Difference(key, f"{key}.{name}", have.get(name), want[name], write=write) for name in different]
    return found or _pending_only(key, state)


def _fixed(key: str, new: str, form: Format, part: str, state: VmState) -> list[_Difference]:
    """Compare a disk whose kind is settled when it is made."""
    text = state.wanted(key)
    if not text:
        return [_Difference(key, key, None, new, write=new)]
    have, want = normal(text, form).get(part), normal(new, form).get(part)
    if have == want:
        return _pending_only(key, state)
    return [_Difference(key, f"{key}.{part}", have, want, never="fixed")]
