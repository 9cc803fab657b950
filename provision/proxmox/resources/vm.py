"""A virtual machine: desired and present configuration compared by meaning, part by part.

What is unset is unmanaged. Create-only: cloud-init user, keys and name. A power cycle applies pending keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from urllib.parse import quote

from provision.contracts import common_effects
from provision.contracts.change import Change, Op, Settles
from provision.contracts.effect import Effect
from provision.contracts.remedy import ApiCall, Impossible, Request
from provision.contracts.snapshot import Snapshot
from provision.proxmox import formats, vm_effects
from provision.proxmox.answers import tags as split_tags
from provision.proxmox.formats import Format, join, normal, size_gib
from provision.proxmox.marker import TAG, Marker, noted_tags, repaired_smbios1, smbios1, write
from provision.proxmox.pci_entries import PciEntries
from provision.proxmox.queries import Elsewhere, Mappings, NodeBridges, NodeStorages, VmConfig, VmState
from provision.proxmox.resources.vm_cards import is_raw, placed_cards, placed_usb
from provision.proxmox.resources.vm_lifecycle import State, VmResource, own_marker, rebuilds, stopped
from provision.proxmox.resources.vm_owner import file_of, taken
from provision.proxmox.resources.vm_parts import GIB, CloudInit, Drive, Efi, Nic, Passed, Plugged, Tpm
from provision.proxmox.resources.vm_replacement import Exchange
from provision.values.diagnostics import Diagnostic

ROOT = "root@pam"
"""The account whose ticket alone may pass devices without a mapping."""
CREATE_SECONDS = 1800.0
RESIZE_SECONDS = 300.0
_LIVE = frozenset({"onboot", "protection", "startup", "tags", "description", "name", "smbios1"})
"""What counts once it is written; the pending value of `smbios1` is read, too."""
_LIVE_PREFIXES = ("net", "scsi", "virtio", "usb")
USB_DEVICES = 14
"""`usb0` to `usb13` (qemu-server, `PVE/QemuServer/USB.pm`; machine 7.1 and later, Linux guests)."""
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
    "machine": formats.MACHINE,
}


@dataclass(frozen=True, slots=True)
class Vm(VmResource):
    """A VM with its configuration.

    Args:
        name: name of the node in the inventory.
        marker: its owner; written at creation, maintained by VmMarker afterwards.
        settings: managed keys and their values as PVE takes them; an empty one is unset (i440fx).
        nics: network devices `net0`, `net1`...
        drives: disks.
        passed: cards `hostpci0`, ...
        plugged: USB devices `usb0`, ...
        efi: disk of OVMF's variables.
        tpm: emulated TPM.
        tags: further tags besides `provision`. Those that the marker notes and that are not here any more go;
            tags of others are kept.
        cloud_init: what the guest gets at its creation.
        medium: volume of an installation medium at creation, or empty.
        images: requests that prove what it is made from, right before it is.
        pool: pool at creation.
        mapping_prefix: mappings of ours; such an entry that is not in `passed` is removed.
        pci: what entries of the VM mean on its node.
        vm_name: its name in Proxmox VE, if that is not the node's; None leaves it as it is.
        makes_disks: it, or a disk of it, is to be made: rules look at the node's storages.
        connects: a network device of it is to be made, or to get another bridge: rules look at the bridges.
    """

    kind: ClassVar[str] = "vm"

    name: str
    marker: Marker
    settings: tuple[tuple[str, str], ...] = ()
    nics: tuple[Nic, ...] = ()
    drives: tuple[Drive, ...] = ()
    passed: tuple[Passed, ...] = ()
    plugged: tuple[Plugged, ...] = ()
    efi: Efi | None = None
    tpm: Tpm | None = None
    tags: tuple[str, ...] = ()
    cloud_init: CloudInit | None = None
    medium: str = ""
    images: tuple[Request, ...] = ()
    pool: str = ""
    mapping_prefix: str = ""
    pci: PciEntries = field(default_factory=lambda: PciEntries(""))
    vm_name: str | None = ""
    makes_disks: bool = False
    connects: bool = False

    def _key_name(self) -> str:
        return self.name

    @property
    def storages(self) -> tuple[str, ...]:
        """The storages of its disks, each once."""
        firmware = [part.storage for part in (self.efi, self.tpm) if part is not None]
        drive = [self.cloud_init.storage] if self.cloud_init is not None else []
        return tuple(dict.fromkeys((*(disk.storage for disk in self.drives), *firmware, *drive)))

    def queries(self) -> tuple[Any, ...]:
        """Ask for the VM and, before something is made, for what the node offers."""
        asked: list[Any] = [VmConfig(self.vmid)]
        asked += [NodeStorages()] if self.makes_disks else []
        asked += [NodeBridges()] if self.connects else []
        return (*asked, *((Mappings(),) if self.passed else ()))

    def optional_queries(self) -> tuple[Any, ...]:
        """Return what rules look at, and the comparison does not."""
        return NodeStorages(), NodeBridges(), Mappings()

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return what differs, field by field."""
        state = self._state(snapshot)
        if state is None:
            return self._creation()
        if isinstance(state, Elsewhere) or own_marker(state, self.marker) is None:
            return (Change(Op.ATTENTION, "vm", old=self._taken(state).summary, new=str(self.vmid)),)
        if rebuilds(state):
            return (self._replaced(),)
        return tuple(difference.change(state) for difference in self._differences(state))

    def fix(self, snapshot: Snapshot, /) -> ApiCall | Impossible:
        """Return the requests that create or change it."""
        state = self._state(snapshot)
        if state is None:
            return ApiCall(self._create_requests(), creates=self.name)
        if isinstance(state, Elsewhere) or own_marker(state, self.marker) is None:
            return Impossible(self._taken(state))
        return self._replacement(state) if rebuilds(state) else self._update(state)

    def foreign(self, state: State) -> Diagnostic | None:
        """Return the problem when the number belongs to something that is not this node's VM."""
        state = self.present(state)
        return None if state is None or own_marker(state, self.marker) is not None else self._taken(state)

    def _taken(self, state: VmState | Elsewhere) -> Diagnostic:
        return taken(self.vmid, self.marker, state, self.source, self.node)

    # ------------------------------------------------------------ creation

    def _devices(self) -> dict[str, str]:
        """Return the keys of a new VM that the plan shows as PVE takes them."""
        devices = {key: value for key, value in self.settings if value}
        devices |= {f"net{index}": nic.text(nic.desired()) for index, nic in enumerate(self.nics)}
        if self.efi is not None:
            devices["efidisk0"] = self.efi.new()
        if self.tpm is not None:
            devices["tpmstate0"] = self.tpm.new()
        devices |= {f"usb{index}": device.text() for index, device in enumerate(self.plugged)}
        return devices | {f"hostpci{index}": card.text() for index, card in enumerate(self.passed)}

    def _creation(self) -> tuple[Change, ...]:
        shown = {"vm": f"VM {self.vmid} on {self.node}", **self._devices()}
        for drive in self.drives:
            image = f" from {drive.image}" if drive.image else ""
            shown[drive.slot] = f"{drive.size // GIB}GiB on {drive.storage}{image}"
        if self.medium:
            shown["ide2"] = self.medium
        if self.pool:
            shown["pool"] = self.pool
        if self.tags:
            shown["tags"] = ";".join(sorted({TAG, *self.tags}))
        return tuple(Change(Op.CREATE, path, None, value) for path, value in shown.items())

    def _create_requests(self) -> tuple[Request, ...]:
        data: dict[str, object] = {
            "vmid": self.vmid,
            "name": self.vm_name or self.name,
            "description": str(self.marker),
            "ostype": "l26",
            "scsihw": "virtio-scsi-single",
            **({} if ("serial0", "") in self.settings else {"serial0": "socket"}),
            **self._devices(),
            "tags": ";".join(sorted({TAG, *self.tags})),
            **{drive.slot: drive.new() for drive in self.drives},
            **self._cloud_init(),
        }
        if self.medium:
            data["ide2"] = f"{self.medium},media=cdrom"
        if self.drives:
            # The firmware starts from the medium as long as the disk before it is empty.
            data["boot"] = f"order={self.drives[0].slot}{';ide2' if self.medium else ''}"
        data["smbios1"] = smbios1(self.marker, self.vmid, self.nics[0].mac if self.nics else "")
        if self.pool:
            data["pool"] = self.pool
        raw = {key: value for key, value in data.items() if is_raw(key, str(value))}
        made = {key: value for key, value in data.items() if key not in raw}
        create = Request("POST", f"/nodes/{self.node}/qemu", made, task=CREATE_SECONDS)
        # An imported disk has the size of its image until it is grown.
        grown = (self._resize(drive) for drive in self.drives if drive.image and drive.size)
        return (*self.images, create, *self._as_root(raw), *grown)

    def _as_root(self, values: Mapping[str, object], **more: object) -> Iterator[Request]:
        """Yield the request for what no token may set or remove; None removes."""
        removed = ",".join(sorted(key for key, value in values.items() if value is None))
        data = {key: value for key, value in values.items() if value is not None}
        data |= {"delete": removed} if removed else {}
        if data:
            yield Request("PUT", f"{self.path}/config", {**data, **more}, login=ROOT)

    def _replaced(self) -> Change:
        disk = self.drives[0]
        new = f"a new {disk.slot} from {disk.image}" if disk.image else f"a new, empty {disk.slot}"
        kept = "; its other disks stay" if self.drives[1:] else ""
        return Change(Op.REPLACE, "vm", f"{disk.slot} of VM {self.vmid}", f"{new}{kept}")

    def _replacement(self, state: VmState) -> ApiCall | Impossible:
        """Return how its system disk is exchanged; everything else of the VM stays or becomes as declared."""
        if snapshot := state.config.get("parent"):
            # PVE frees no disk that a snapshot needs (qemu-server, `try_deallocate_drive`).
            return self._refused(
                "VM_HAS_SNAPSHOTS",
                f"VM {self.vmid} of {self.name} has snapshots (the last one is {snapshot}),"
                " which need the disk that must be replaced",
                subject=self.name,
                untouched="The VM was not changed.",
                remedy=f"see what they hold, `qm listsnapshot {self.vmid}`, and remove each of them:"
                f" `qm delsnapshot {self.vmid} NAME`",
            )
        stop = stopped(self.node, state, self.name, self.source)
        if isinstance(stop, Impossible):
            return stop
        system = self.drives[0]
        off = replace(state, status="stopped")
        others = [each for each in self._compare(off) if each.key not in (system.slot, "description")]
        for difference in others:
            if difference.never == "shrink":
                return self._never(difference)
        firmware = {
            "efidisk0": self.efi.new() if self.efi else "",
            "tpmstate0": self.tpm.new() if self.tpm else "",
        }
        fixed = {each.key: firmware[each.key] for each in others if each.never}
        raw = {each.key: each.write for each in others if each.is_raw}
        settings = {each.key: each.write for each in others if not (each.never or each.grow or each.is_raw)}
        first_mac = self.nics[0].mac if self.nics else ""
        settings |= {
            "description": write(state.next_value("description"), self.marker),
            "smbios1": smbios1(self.marker, self.vmid, first_mac),
        }
        exchange = Exchange(system.slot, system.new(), fixed, settings, self._cloud_init())
        gone = ",".join(exchange.gone(state))
        unlink = Request("PUT", f"{self.path}/unlink", {"idlist": gone, "force": 1})
        requests = [*self.images, *stop, *([unlink] if gone else [])]
        requests.append(Request("POST", f"{self.path}/config", exchange.data(state), task=CREATE_SECONDS))
        requests += self._as_root(raw)
        grown = [each.grow for each in others if each.grow is not None]
        # An imported disk has the size of its image until it is grown.
        grown += [system] if system.image and system.size else []
        requests += [self._resize(drive) for drive in grown]
        risks = (Effect(common_effects.REPLACE, self.name),)
        return ApiCall(tuple(requests), risks=risks, creates=self.name)

    def _cloud_init(self) -> dict[str, object]:
        drive = self.cloud_init
        if drive is None:
            return {}
        data: dict[str, object] = {
            "ide2": f"{drive.storage}:cloudinit",
            "ciuser": drive.user,
            "ciupgrade": 0,
            "ipconfig0": drive.network,
        }
        if drive.nameserver:
            data["nameserver"] = drive.nameserver
        if drive.keys:
            data["sshkeys"] = quote(drive.keys.strip(), safe="")
        if drive.vendor:
            data["cicustom"] = f"vendor={drive.vendor}"
        return data

    def _resize(self, drive: Drive) -> Request:
        data = {"disk": drive.slot, "size": f"{drive.size // GIB}G"}
        return Request("PUT", f"{self.path}/resize", data, task=RESIZE_SECONDS)

    # ------------------------------------------------------------ differences

    def _differences(self, state: VmState) -> list[_Difference]:
        """Return what differs; a foreign pending value is dropped if that leaves less to change."""
        differences = self._compare(state)
        reverts: list[_Difference] = []
        for key in sorted(state.pending):
            kept = replace(
                state, pending={name: value for name, value in state.pending.items() if name != key}
            )
            remaining = self._compare(kept)
            if _unwritten(remaining) < _unwritten(differences):
                waiting = state.pending[key]
                old = "removal (pending)" if waiting is None else f"{waiting} (pending)"
                active = state.config.get(key)
                reverts.append(_Difference(key, key, old, active, write=active, revert=True))
                state, differences = kept, remaining
        return reverts + differences

    def _compare(self, state: VmState) -> list[_Difference]:
        named = self.vm_name is not None
        differences = _setting("name", self.vm_name or self.name, state) if named else []
        for key, value in self.settings:
            differences += _setting(key, value, state)
        for index, nic in enumerate(self.nics):
            differences += _nic(f"net{index}", nic, state)
        differences += self._cards(state)
        if self.efi is not None:
            differences += _fixed("efidisk0", self.efi.new(), formats.EFIDISK, "pre-enrolled-keys", state)
        if self.tpm is not None:
            differences += _fixed("tpmstate0", self.tpm.new(), formats.TPMSTATE, "version", state)
        for drive in self.drives:
            differences += _drive(drive, state)
        return differences + _notes(state, self.tags) + self._second_marker(state) + _tags(state, self.tags)

    def _second_marker(self, state: VmState) -> list[_Difference]:
        """Return the second home of the marker, if it was lost; a guest sees it after its power cycle."""
        if state.marker is None:
            return []
        text = state.next_value("smbios1")
        mac = self.nics[0].mac if self.nics else ""
        repaired = repaired_smbios1(text, state.marker, self.vmid, mac)
        return [_Difference("smbios1", "smbios1", text, repaired, write=repaired)] if repaired else []

    def _cards(self, state: VmState) -> list[_Difference]:
        slots = [f"hostpci{index}" for index in range(16)]
        values = {slot: state.next_value(slot) for slot in slots}
        desired = placed_cards(self.passed, values, self.pci, self.mapping_prefix)
        ports = [f"usb{index}" for index in range(USB_DEVICES)]
        present = {slot: state.next_value(slot) for slot in ports}
        desired |= placed_usb(self.plugged, present, self.mapping_prefix)
        slots += ports
        values |= present
        differences: list[_Difference] = []
        for slot in slots:
            old, new = values[slot] or None, desired.get(slot)
            if old == new:
                differences += _pending_only(slot, state) if new is not None else []
            else:
                differences.append(_Difference(slot, slot, old, new, write=new))
        return differences

    # ------------------------------------------------------------ update

    def _update(self, state: VmState) -> ApiCall | Impossible:
        differences = self._differences(state)
        for difference in differences:
            if difference.never:
                return self._never(difference)
        changed = [each for each in differences if not each.owed and each.grow is None]
        written = [each for each in changed if not each.is_raw]
        data: dict[str, object] = {each.key: each.write for each in written if each.write is not None}
        removed = {each.key for each in written if each.write is None}
        if removed:
            data["delete"] = ",".join(sorted(removed))
        requests: list[Request] = []
        if data:
            requests.append(Request("PUT", f"{self.path}/config", {**data, "digest": state.digest}))
        raw = {each.key: each.write for each in changed if each.is_raw}
        requests += self._as_root(raw, digest=state.digest)
        requests += [self._resize(each.grow) for each in differences if each.grow is not None]
        cold = any(each.change(state).settles is Settles.AFTER_EFFECT for each in differences)
        effects = (Effect(vm_effects.POWER_CYCLE, self.name),) if cold else ()
        return ApiCall(tuple(requests), effects=effects)

    def _never(self, difference: _Difference) -> Impossible:
        code, remedy = "DISK_SHRINK", "Write the larger size to the inventory: disks only grow."
        if difference.never != "shrink":
            code, rebuild = "DISK_FIXED", f"provision rebuild {file_of(self.source)} {self.name}"
            remedy = f"Write the present value to the inventory, or rebuild the VM: `{rebuild}`"
        return self._refused(
            code,
            f"{self.name}: {difference.path} is {difference.old} and cannot become {difference.new}",
            subject=self.name,
            untouched="The VM was not changed.",
            remedy=remedy,
        )


@dataclass(frozen=True, slots=True)
class _Difference:
    """One field that differs.

    Args:
        key: configuration key.
        path: what the user reads.
        old: present value.
        new: desired value.
        write: what the key becomes; None deletes it.
        owed: the value is written and waits for a power cycle.
        grow: the disk that is grown.
        never: why it cannot be changed, or empty.
        revert: the active value is right: PVE drops what waits once that is written again
            (pve-guest-common, `PVE/AbstractConfig.pm`, cleanup_pending).
    """

    key: str
    path: str
    old: object
    new: object
    write: str | None = None
    owed: bool = False
    grow: Drive | None = None
    never: str = ""
    revert: bool = False

    @property
    def is_raw(self) -> bool:
        """Whether its old or its new value is a device without a mapping: PVE looks at both."""
        return any(is_raw(self.key, str(value)) for value in (self.old, self.new, self.write) if value)

    def change(self, state: VmState) -> Change:
        """Return it as the plan shows it."""
        if self.never:
            return Change(Op.ATTENTION, self.path, self.old, self.new)
        # A disk grows at once on any bus: PVE resizes it, and tells a running guest (qemu-server, resize_vm).
        live = self.grow is not None or self.key in _LIVE or self.key.startswith(_LIVE_PREFIXES)
        cold = state.running and not self.revert and (self.owed or not live)
        settles = Settles.AFTER_EFFECT if cold else Settles.NOW
        op = Op.CREATE if self.old is None else Op.DELETE if self.new is None else Op.UPDATE
        return Change(op, self.path, self.old, self.new, settles)


def _notes(state: VmState, tags: Sequence[str]) -> list[_Difference]:
    """Return the marker line that Notes have lost, or that has other tags; what people wrote stays."""
    marker = None if state.marker is None else replace(state.marker, tags=noted_tags(tags))
    if marker is None or marker == state.noted_marker:
        return []
    description = state.next_value("description")
    text = write(description, marker)
    return [_Difference("description", "description", description or None, text, write=text)]


def _tags(state: VmState, declared: Sequence[str]) -> list[_Difference]:
    """Return the tags that are missing, and those that were declared once and are not any more."""
    text = state.next_value("tags")
    present = set(split_tags(text))
    noted = set(state.marker.tags.split(",")) if state.marker is not None else set()
    desired = (present - noted) | {TAG, *declared}
    if desired == present:
        return []
    new = ";".join(sorted(desired))
    return [_Difference("tags", "tags", text, new, write=new)]


def _unwritten(differences: list[_Difference]) -> int:
    """Return how many differences no written value stands for yet."""
    return sum(not difference.owed for difference in differences)


def _pending_only(key: str, state: VmState) -> list[_Difference]:
    """Return the owed difference of a key whose value is right but waits for a power cycle."""
    if key not in state.pending:
        return []
    return [_Difference(key, key, state.config.get(key), state.pending[key], owed=True)]


def _setting(key: str, desired: str, state: VmState) -> list[_Difference]:
    value = state.next_value(key)
    if not _same(key, desired, value, state):
        write = _merged(key, desired, value) if desired else None
        new = desired or ("i440fx" if key == "machine" else None)
        return [_Difference(key, key, value or _DEFAULTS.get(key), new, write=write)]
    if _same(key, desired, state.config.get(key, ""), state):
        return []
    return _pending_only(key, state)


def _same(key: str, desired: str, value: str, state: VmState) -> bool:
    if key == "machine":
        present = normal(value, formats.MACHINE)["type"]
        # `pc-q35-10.1` is a version; without one, any version of the family is as declared.
        return desired == present if desired.startswith("pc-") else ("q35" in desired) == ("q35" in present)
    if key == "balloon":  # without a value PVE gives the VM all of its memory
        memory = normal(state.next_value("memory"), formats.MEMORY)["current"]
        return desired == (value or memory)
    form = _FORMATS.get(key)
    if form is None:
        return desired == (value or _DEFAULTS.get(key, ""))
    parts = normal(value, form)
    return all(parts.get(name) == part for name, part in formats.explicit(desired, form).items())


def _merged(key: str, desired: str, value: str) -> str:
    """Return the value to write: the desired parts over the present ones, so that unmanaged parts stay."""
    form = _FORMATS.get(key)
    if form is None:
        return desired
    old, new = formats.explicit(value, form), formats.explicit(desired, form)
    return join({**old, **new}) if set(old) - set(new) else desired


def _nic(key: str, nic: Nic, state: VmState) -> list[_Difference]:
    text, desired = state.next_value(key), nic.desired()
    if not text:
        return [_Difference(key, key, None, nic.text(desired), write=nic.text(desired))]
    parts = normal(text, formats.NET)
    write = nic.text({**formats.explicit(text, formats.NET), **desired})
    differences = [
        _Difference(key, f"{key}.{name}", parts.get(name), value, write=write)
        for name, value in desired.items()
        if parts.get(name) != value
    ]
    return differences or _pending_only(key, state)


def _drive(drive: Drive, state: VmState) -> list[_Difference]:
    text, slot = state.next_value(drive.slot), drive.slot
    if not text:
        return [_Difference(slot, slot, None, drive.new(), write=drive.new())]
    parts = normal(text, formats.DRIVE)
    differences: list[_Difference] = []
    size, desired = size_gib(parts.get("size", "")), drive.size // GIB
    if desired and size != desired:
        how: dict[str, Any] = {"grow": drive} if size < desired else {"never": "shrink"}
        differences.append(_Difference(slot, f"{slot}.size", f"{size:g}GiB", f"{desired}GiB", **how))
    options = {key: value for key, value in drive.declared if parts.get(key, "0") != value}
    write = join({**formats.parse(text), **options})
    for key, value in options.items():
        differences.append(_Difference(slot, f"{slot}.{key}", parts.get(key), value, write=write))
    return differences


def _fixed(key: str, new: str, form: Format, part: str, state: VmState) -> list[_Difference]:
    """Compare a disk whose kind nobody can change later."""
    text = state.next_value(key)
    if not text:
        return [_Difference(key, key, None, new, write=new)]
    value, desired = normal(text, form).get(part), normal(new, form).get(part)
    if value == desired:
        return _pending_only(key, state)
    return [_Difference(key, f"{key}.{part}", value, desired, never="fixed")]
