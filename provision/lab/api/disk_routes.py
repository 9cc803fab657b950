"""`resize` and `unlink` of a VM's drives."""

from __future__ import annotations

from provision.lab.api.changes import apply_pending, running, split_list
from provision.lab.api.configs import check_lock
from provision.lab.api.core import NODE, Call, Need, Route
from provision.lab.api.disks import drive_parts, is_cdrom
from provision.lab.api.errors import TaskError, bad_parameter, failed
from provision.lab.api.schema import Field, Params, print_parts
from provision.lab.api.storages import Volume, format_size, parse_size
from provision.lab.api.tasks import TaskLog
from provision.lab.api.vmschema import VMID, is_disk

BOOL = Field("boolean")
_GIB = 1 << 30
_VM = {"node": NODE, "vmid": VMID}
_NEED = Need("/vms/{vmid}", ("VM.Config.Disk",))


def _resize(call: Call) -> str:
    lab, disk, text = call.lab, call.text("disk"), call.text("size")
    config = lab.configs.load(call.vmid)
    if call.text("digest") and call.text("digest") != config.digest():
        raise failed("checksum mismatch (file change by other user?)")
    if not is_disk(disk):
        raise bad_parameter("disk", f"value '{disk}' does not name a drive")

    def work(_log: TaskLog) -> None:
        with lab.configs.locked(call.vmid):
            locked_config = lab.configs.load(call.vmid)
            if not (call.flag("skiplock") and call.auth.is_root):
                check_lock(locked_config)
            if disk not in locked_config.values:
                raise TaskError(f"disk '{disk}' does not exist")
            if is_cdrom(disk, locked_config.values[disk]):
                raise TaskError("you can't resize a cdrom")
            parts = drive_parts(disk, locked_config.values[disk])
            volume = lab.storages.find(parts["file"])
            if volume is None:
                raise TaskError(f"volume '{parts['file']}' does not exist")
            _grow(call, volume, text)
            grown = lab.storages.find(parts["file"]) or volume
            parts["size"] = format_size(grown.size)
            locked_config.values[disk] = print_parts(parts, "file")
            lab.configs.save(locked_config)

    return call.start("resize", str(call.vmid), work)


def _grow(call: Call, volume: Volume, text: str) -> None:
    size = volume.size + parse_size(text[1:]) if text.startswith("+") else parse_size(text)
    if size < volume.size:
        raise TaskError("shrinking disks is not supported")
    if size > volume.size:
        if running(call.lab, call.vmid):
            raise TaskError("the lab grows disks only of VMs that are off")
        call.lab.guests.grow_disk(volume.path, size / _GIB)


def _unlink(call: Call) -> None:
    lab = call.lab
    with lab.configs.locked(call.vmid):
        config = lab.configs.load(call.vmid)
        check_lock(config)
        config.deleted |= {key for key in split_list(call.text("idlist")) if key in config.values}
        if not running(lab, call.vmid):
            apply_pending(lab, config, force=call.flag("force"))
        lab.configs.save(config)


ROUTES: tuple[Route, ...] = (
    Route(
        "PUT",
        "/nodes/{node}/qemu/{vmid}/resize",
        _resize,
        Params(
            {
                **_VM,
                "disk": Field(required=True),
                "size": Field(required=True, pattern=r"\+?\d+(\.\d+)?[KMGT]?"),
                "digest": Field(max_length=64),
                "skiplock": BOOL,
            }
        ),
        _NEED,
    ),
    Route(
        "PUT",
        "/nodes/{node}/qemu/{vmid}/unlink",
        _unlink,
        Params({**_VM, "idlist": Field(required=True), "force": BOOL}),
        _NEED,
    ),
)
