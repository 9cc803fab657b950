"""Drives of a VM: checked before a task, allocated inside it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from provision.lab.api.core import Call, Lab
from provision.lab.api.errors import ApiError, TaskError, bad_parameter, failed
from provision.lab.api.schema import parse_parts, print_parts
from provision.lab.api.storages import Storage, format_size, virtual_size
from provision.lab.api.tasks import TaskLog
from provision.lab.api.vmschema import DISKS, EFI_DISK, TPM_STATE, base_name, is_disk

_NEW = re.compile(r"([A-Za-z][\w.-]*):(\d+(?:\.\d+)?)")
_CLOUD = re.compile(r"([A-Za-z][\w.-]*):cloudinit")
_VOLUME = re.compile(r"([A-Za-z][\w.-]*):(\S+)")
_GIB = 1 << 30
_MIB = 1 << 20
_CLOUD_SIZE = 4 << 20
_TPM_SIZE = 4 << 20
STATE_DISKS = frozenset({"efidisk0", "tpmstate0"})
"""Disks that hold the state of a machine and are no disks of its guest."""
NO_MEDIUM = frozenset({"none", "cdrom"})


def drive_parts(key: str, value: str) -> dict[str, str]:
    """Take a drive's property string apart."""
    own = {"efidisk0": EFI_DISK, "tpmstate0": TPM_STATE}
    return parse_parts(own.get(key) or DISKS[base_name(key)], value)


def is_cdrom(key: str, value: str) -> bool:
    """Say whether a drive is a CD-ROM; a cloud-init drive is one."""
    parts = drive_parts(key, value)
    return parts.get("media") == "cdrom" or parts["file"] in NO_MEDIUM or is_cloud_drive(value)


def is_cloud_drive(value: str) -> bool:
    """Say whether a drive carries cloud-init data."""
    file = value.partition(",")[0].removeprefix("file=")
    return bool(_CLOUD.fullmatch(file) or re.fullmatch(r"[^:]+:vm-\d+-cloudinit", file))


def disk_keys(values: dict[str, str]) -> list[str]:
    """Return the drives among a VM's keys, by name."""
    return sorted(key for key in values if is_disk(key))


def check_drive(call: Call, key: str, value: str, old: str | None) -> None:
    """Check storage, rights and source of a drive before a task starts.

    Raises:
        ApiError: as the real one does before it forks.
    """
    parts = drive_parts(key, value)
    file = parts["file"]
    if file in NO_MEDIUM:
        return
    new = _NEW.fullmatch(file) or _CLOUD.fullmatch(file)
    if new is not None:
        call.check(f"/storage/{new[1]}", "Datastore.AllocateSpace")
        call.lab.storages.get(new[1])
        call.lab.storages.for_images(new[1])
        if "import-from" in parts:
            _check_source(call, key, parts["import-from"], file)
        return
    if "import-from" in parts:
        raise bad_parameter(
            key, "'import-from' requires special syntax - use <storage ID>:0,import-from=<source>"
        )
    volume = _VOLUME.fullmatch(file)
    if volume is None:
        raise bad_parameter(key, f"invalid format - unable to parse volume ID '{file}'\n")
    call.lab.storages.get(volume[1])
    if old is None or drive_parts(key, old)["file"] != file:
        call.check(f"/storage/{volume[1]}", "Datastore.Audit", "Datastore.AllocateSpace", some=True)


def _check_source(call: Call, key: str, source: str, file: str) -> None:
    if not file.endswith(":0"):
        raise bad_parameter(
            key, "'import-from' requires special syntax - use <storage ID>:0,import-from=<source>"
        )
    volume = _VOLUME.fullmatch(source)
    if volume is None:
        raise failed("Only root can pass arbitrary filesystem paths.")
    call.lab.storages.get(volume[1])
    kind = volume[2].partition("/")[0] if "/" in volume[2] else "images"
    if kind not in {"images", "import"}:
        raise bad_parameter(key, f"{source} has wrong type '{kind}' - needs to be 'images' or 'import'")
    call.check(f"/storage/{volume[1]}", "Datastore.Audit", "Datastore.AllocateSpace", some=True)


@dataclass(slots=True)
class Allocation:
    """Makes the volumes of one VM, and unmakes them when something fails."""

    lab: Lab
    vmid: int
    log: TaskLog
    made: list[str] = field(default_factory=list)

    def drive(self, key: str, value: str) -> str:
        """Allocate what a drive's value asks for and return the value to store."""
        parts = drive_parts(key, value)
        file = parts["file"]
        if file in NO_MEDIUM:
            return value
        cloud = _CLOUD.fullmatch(file)
        new = _NEW.fullmatch(file)
        if cloud is not None:
            parts["file"] = self._cloud_drive(self.lab.storages.get(cloud[1]))
            parts["media"] = "cdrom"
            self._created(key, parts)
        elif new is not None:
            storage = self.lab.storages.get(new[1])
            source = parts.pop("import-from", None)
            with self.lab.disk_lock:
                parts["file"] = self._disk(storage, key, float(new[2]), source)
            parts.pop("format", None)
            parts["size"] = self._size(parts["file"])
            self._created(key, parts)
        else:
            volume = self.lab.storages.find(file)
            if volume is None:
                raise TaskError(f"volume '{file}' does not exist")
            parts["size"] = format_size(volume.size)
            if is_cloud_drive(value):
                del parts["size"]
        return print_parts(parts, "file")

    def _created(self, key: str, parts: dict[str, str]) -> None:
        self.log.line(f"{key}: successfully created disk '{print_parts(parts, 'file')}'")

    def _size(self, volid: str) -> str:
        volume = self.lab.storages.find(volid)
        if volume is None:
            raise TaskError(f"volume '{volid}' does not exist")
        return format_size(volume.size)

    def _cloud_drive(self, storage: Storage) -> str:
        name = f"vm-{self.vmid}-cloudinit"
        path = self.lab.storages.image_path(storage, name, ".raw")
        if path.exists():
            raise TaskError(f"a cloud-init drive of VM {self.vmid} exists already on '{storage.name}'")
        self.made.append(f"{storage.name}:{name}")
        # A place holder: the guest driver makes the real seed at start.
        with path.open("wb") as file:
            file.truncate(_CLOUD_SIZE)
        return self.made[-1]

    def _disk(self, storage: Storage, key: str, size: float, source: str | None) -> str:
        name = self.lab.storages.new_disk_name(storage, self.vmid)
        self.made.append(f"{storage.name}:{name}")
        if key == "efidisk0":
            path = self.lab.storages.image_path(storage, name, ".raw")
            self.lab.guests.create_efivars(path)
        elif key == "tpmstate0":
            self.lab.guests.create_disk(self.lab.storages.image_path(storage, name), _TPM_SIZE / _GIB)
        elif source is not None:
            volume = self.lab.storages.find(source)
            if volume is None:
                raise TaskError(f"could not get size of {source}")
            self.log.line(f"create full clone of drive ({source})")
            self.log.line(f"allocated target volume '{self.made[-1]}'")
            gib = -(-virtual_size(volume.path) // _MIB) * _MIB / _GIB
            self.lab.guests.import_disk(volume.path, self.lab.storages.image_path(storage, name), gib)
        else:
            mebibytes = max(1, -(-int(size * _GIB) // _MIB))
            self.lab.guests.create_disk(self.lab.storages.image_path(storage, name), mebibytes * _MIB / _GIB)
        return self.made[-1]

    def undo(self) -> None:
        """Remove what was made."""
        for volid in self.made:
            remove_volume(self.lab, volid)
        self.made.clear()


def remove_volume(lab: Lab, volid: str) -> None:
    """Remove a disk image if it is there."""
    storage, _, name = volid.partition(":")
    if storage not in lab.storages.all:
        return
    for suffix in (".qcow2", ".raw"):
        lab.storages.image_path(lab.storages.get(storage), name, suffix).unlink(missing_ok=True)


def owned_volume(vmid: int, key: str, value: str) -> str | None:
    """Return the volume of a drive if it belongs to the VM."""
    file = value if key.startswith("unused") else drive_parts(key, value)["file"]
    return file if re.fullmatch(rf"[\w.-]+:vm-{vmid}-[\w.-]+", file) else None


def boot_disk(values: dict[str, str]) -> str | None:
    """Return the drive that a VM boots from: the first disk of the boot order, else the first disk."""
    disks = [key for key in disk_keys(values) if key not in STATE_DISKS and not is_cdrom(key, values[key])]
    order = re.sub(r"^order=", "", values.get("boot", "")).split(";")
    return next((key for key in order if key in disks), disks[0] if disks else None)


def bus_order(values: dict[str, str]) -> list[str]:
    """Return a VM's disks in order of bus and number, the boot disk first."""
    rank = {"ide": 0, "sata": 1, "scsi": 2, "virtio": 3}

    def position(key: str) -> tuple[int, int]:
        bus = key.rstrip("0123456789")
        return rank[bus], int(key.removeprefix(bus))

    disks = [key for key in disk_keys(values) if key not in STATE_DISKS and not is_cdrom(key, values[key])]
    first = boot_disk(values)
    return sorted(disks, key=lambda key: (key != first, position(key)))


def drive_size(values: dict[str, str], key: str | None) -> int:
    """Return a drive's size in bytes as its configuration has it; 0 without one."""
    if key is None:
        return 0
    match = re.fullmatch(r"(\d+)([KMGT])", drive_parts(key, values[key]).get("size", "0K"))
    return int(match[1]) * 1024 ** (" KMGT".index(match[2])) if match else 0


def default_boot(values: dict[str, str]) -> str:
    """Return the boot order of a VM that was given none: first disk, first CD-ROM, first network device."""
    drives = [key for key in disk_keys(values) if key not in STATE_DISKS]
    disks = [key for key in drives if not is_cdrom(key, values[key])]
    cdroms = [key for key in drives if is_cdrom(key, values[key])]
    nets = sorted(key for key in values if re.fullmatch(r"net\d+", key))
    order = [keys[0] for keys in (disks, cdroms, nets) if keys]
    return f"order={';'.join(order)}" if order else " "


def check_boot(values: dict[str, str]) -> None:
    """Raise when the boot order names a device that is not there."""
    order = values.get("boot", "")
    if order.startswith("order="):
        for device in filter(None, order.removeprefix("order=").split(";")):
            if device not in values:
                raise ApiError(500, f"invalid bootorder: device '{device}' does not exist'")
