"""`clone`, `template` and `snapshot`: states that somebody else than this tool makes.

Facts: qemu-server `PVE/API2/Qemu.pm` (clone_vm, template): a clone has its own MAC addresses, uuid and
vmgenid, and keeps the description and the other fields of `smbios1`. The lab's disks have no snapshots.
"""

from __future__ import annotations

import re
import uuid
from typing import Any

from provision.lab.api.changes import new_mac, running
from provision.lab.api.configs import VmConfig, check_lock
from provision.lab.api.core import NODE, Call, Need, Route
from provision.lab.api.disks import Allocation, drive_parts, is_cdrom
from provision.lab.api.errors import ApiError, TaskError, failed
from provision.lab.api.schema import Field, Params, parse_parts, print_parts
from provision.lab.api.storages import format_size
from provision.lab.api.tasks import TaskLog
from provision.lab.api.vmschema import NET, VMID, base_name, is_disk
from provision.lab.contracts import GuestError

BOOL = Field("boolean")
TEXT = Field()
_VM = {"node": NODE, "vmid": VMID}
_KEPT_BACK = frozenset({"lock", "template", "parent", "snaptime", "vmgenid", "smbios1", "name"})


def _clone(call: Call) -> str:
    lab, vmid, new = call.lab, call.vmid, call.number("newid")
    config = lab.configs.load(vmid)
    call.check(f"/vms/{new}", "VM.Allocate")
    check_lock(config)
    with lab.configs.locked(new):
        if lab.configs.exists(new):
            raise failed(f"unable to create VM {new}: config file already exists")
        lab.configs.save(VmConfig(new, {"lock": "clone"}))

    def work(log: TaskLog) -> None:
        allocation = Allocation(lab, new, log)
        try:
            values = {
                key: _copied(allocation, key, value)
                for key, value in config.values.items()
                if key not in _KEPT_BACK
            }
        except (TaskError, GuestError, ApiError, OSError) as error:
            allocation.undo()
            lab.configs.remove(new)
            raise TaskError(f"clone failed: {error}") from error
        smbios = re.sub(r"uuid=[^,]*", f"uuid={uuid.uuid4()}", config.values.get("smbios1", "uuid="))
        name = call.text("name") or f"Copy-of-VM-{config.values.get('name', vmid)}"
        values |= {"smbios1": smbios, "vmgenid": str(uuid.uuid4()), "name": name}
        lab.configs.save(VmConfig(new, values))

    return call.start("qmclone", str(vmid), work)


def _copied(allocation: Allocation, key: str, value: str) -> str:
    if base_name(key) == "net":
        parts = parse_parts(NET, value)
        model = parts.pop("model")
        parts.pop("macaddr", None)
        return print_parts({**parts, model: new_mac()}, model, keyless=False)
    if not is_disk(key) or is_cdrom(key, value):
        return value
    parts = drive_parts(key, value)
    volume = allocation.lab.storages.find(parts["file"])
    if volume is None:
        raise TaskError(f"volume '{parts['file']}' does not exist")
    storage = allocation.lab.storages.get(parts["file"].partition(":")[0])
    name = allocation.lab.storages.new_disk_name(storage, allocation.vmid)
    allocation.made.append(f"{storage.name}:{name}")
    target = allocation.lab.storages.image_path(storage, name)
    allocation.lab.guests.import_disk(volume.path, target, volume.size / (1 << 30))
    return print_parts({**parts, "file": allocation.made[-1], "size": format_size(volume.size)}, "file")


def _template(call: Call) -> str:
    config = call.lab.configs.load(call.vmid)
    check_lock(config)
    if running(call.lab, call.vmid):
        raise failed("you can't convert a VM to template if VM is running")

    def work(_log: TaskLog) -> None:
        with call.lab.configs.locked(call.vmid):
            locked = call.lab.configs.load(call.vmid)
            locked.values["template"] = "1"
            call.lab.configs.save(locked)

    return call.start("qmtemplate", str(call.vmid), work)


def _snapshot(call: Call) -> str:
    check_lock(call.lab.configs.load(call.vmid))

    def work(_log: TaskLog) -> None:
        raise TaskError("snapshot feature is not available")

    return call.start("qmsnapshot", str(call.vmid), work)


def _routes() -> tuple[Route, ...]:
    base = "/nodes/{node}/qemu/{vmid}"
    clone: dict[str, Any] = {**_VM, "newid": VMID, "name": TEXT, "full": BOOL, "storage": TEXT, "pool": TEXT}
    return (
        Route("POST", f"{base}/clone", _clone, Params(clone), Need("/vms/{vmid}", ("VM.Clone",))),
        Route(
            "POST",
            f"{base}/template",
            _template,
            Params({**_VM, "disk": TEXT}),
            Need("/vms/{vmid}", ("VM.Allocate",)),
        ),
        Route(
            "POST",
            f"{base}/snapshot",
            _snapshot,
            Params({**_VM, "snapname": Field(required=True), "description": TEXT, "vmstate": BOOL}),
            Need("/vms/{vmid}", ("VM.Snapshot",)),
        ),
    )


ROUTES = _routes()
