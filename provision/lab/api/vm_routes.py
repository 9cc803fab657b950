"""`/nodes/{node}/qemu`: lists, create, configuration and removal of VMs."""

from __future__ import annotations

import time
import uuid
from typing import Any

from provision.lab.api.changes import (
    change,
    check_changes,
    check_hostpci,
    check_key_rights,
    check_ssh_keys,
    normalise,
    running,
    vm_values,
)
from provision.lab.api.configs import VmConfig, check_lock
from provision.lab.api.core import NODE, Call, Lab, Need, Route
from provision.lab.api.disks import (
    Allocation,
    check_drive,
    default_boot,
    disk_keys,
    is_cloud_drive,
    owned_volume,
    remove_volume,
)
from provision.lab.api.errors import ApiError, TaskError, bad_parameter, failed, forbidden
from provision.lab.api.power import start_guest, temporary_efivars
from provision.lab.api.schema import Field, Params
from provision.lab.api.status import vm_list, vm_status
from provision.lab.api.tasks import TaskLog
from provision.lab.api.vmschema import CREATE, UPDATE, UPDATE_TASK, VMID, is_disk, typed
from provision.lab.contracts import GuestError

BOOL = Field("boolean")
_VM = {"node": NODE, "vmid": VMID}
_AUDIT = Need("/vms/{vmid}", ("VM.Audit",))
_CONFIG = Need(
    "/vms/{vmid}",
    tuple(
        f"VM.Config.{name}"
        for name in ("Disk", "CDROM", "CPU", "Memory", "Network", "HWType", "Options", "Cloudinit")
    ),
    some=True,
)
_QEMU_VERSION = "11.0.0"


def _list(call: Call) -> Any:
    return vm_list(call)


def _create(call: Call) -> str:
    lab, vmid, values = call.lab, call.vmid, vm_values(call)
    _check_place(call)
    for key, value in values.items():
        check_key_rights(call, key, value, None)
    if call.flag("start"):
        call.check(f"/vms/{vmid}", "VM.PowerMgmt")
    check_hostpci(values)
    for key in disk_keys(values):
        check_drive(call, key, values[key], None)
    if sum(is_cloud_drive(values[key]) for key in disk_keys(values)) > 1:
        raise failed("multiple cloud-init drives are not supported")
    if "sshkeys" in values:
        check_ssh_keys(values["sshkeys"])
    with lab.configs.locked(vmid):
        if lab.configs.exists(vmid):
            raise failed(f"unable to create VM {vmid} - VM {vmid} already exists on node '{lab.node}'")
        lab.configs.save(VmConfig(vmid, {"lock": "create"}))

    def work(log: TaskLog) -> None:
        _build(lab, vmid, values, log)
        if call.flag("start"):
            log.line("Execute autostart")
            call.start("qmstart", str(vmid), lambda start_log: start_guest(lab, vmid, start_log))

    return call.start("qmcreate", str(vmid), work)


def _check_place(call: Call) -> None:
    if not call.may(f"/vms/{call.vmid}", "VM.Allocate"):
        raise forbidden()
    if call.text("pool"):  # the lab has none
        raise ApiError(403, f"pool '{call.text('pool')}' does not exist")


def _build(lab: Lab, vmid: int, values: dict[str, str], log: TaskLog) -> None:
    allocation = Allocation(lab, vmid, log)
    with lab.configs.locked(vmid):
        try:
            stored = {
                key: normalise(key, allocation.drive(key, value) if is_disk(key) else value)
                for key, value in sorted(values.items())
                if value or key != "description"
            }
            stored.setdefault("boot", default_boot(stored))
            stored["meta"] = f"creation-qemu={_QEMU_VERSION},ctime={int(time.time())}"
            stored.setdefault("smbios1", f"uuid={uuid.uuid4()}")
            if stored.get("vmgenid", "1") == "1":
                stored["vmgenid"] = str(uuid.uuid4())
            lab.configs.save(VmConfig(vmid, stored))
        except (TaskError, GuestError, ApiError, OSError) as error:
            allocation.undo()
            lab.configs.remove(vmid)
            raise TaskError(f"unable to create VM {vmid} - {error}") from error


def _get_config(call: Call) -> Any:
    config = call.lab.configs.load(call.vmid)
    values = config.values if call.flag("current") else config.merged()
    return {key: typed(key, value) for key, value in values.items()} | {"digest": config.digest()}


def _put_config(call: Call) -> None:
    change(call, _Silent())


def _post_config(call: Call) -> str:
    call.lab.configs.load(call.vmid)
    shown = [f"-{key} {value}" for key, value in call.params.items() if key not in {"node", "vmid", "digest"}]

    def work(log: TaskLog) -> None:
        log.line(f"update VM {call.vmid}: {' '.join(shown)}")
        change(call, log)

    # What a PUT would refuse at once is refused before the task here too.
    check_changes(call, call.lab.configs.load(call.vmid))
    return call.start("qmconfig", str(call.vmid), work)


class _Silent(TaskLog):
    """The log of a change outside of a task."""

    def __init__(self) -> None:
        self.warnings = 0

    def line(self, text: str) -> None:
        """Say nothing."""


def _pending(call: Call) -> Any:
    config = call.lab.configs.load(call.vmid)
    result = []
    for key in sorted({*config.values, *config.pending}):
        entry: dict[str, Any] = {"key": key}
        if key in config.values:
            entry["value"] = typed(key, config.values[key])
        if key in config.pending:
            entry["pending"] = typed(key, config.pending[key])
        if key in config.deleted:
            entry["delete"] = 1
        result.append(entry)
    return [*result, {"key": "digest", "value": config.digest()}]


def _delete(call: Call) -> str:
    lab, vmid = call.lab, call.vmid
    if call.flag("skiplock") and not call.auth.is_root:
        raise bad_parameter("skiplock", "Only root may use this option.")
    config = lab.configs.load(vmid)
    if config.values.get("protection") == "1":
        raise failed(f"can't remove VM {vmid} - protection mode enabled")
    if running(lab, vmid):
        raise failed(f"VM {vmid} is running - destroy failed")

    def work(log: TaskLog) -> None:
        with lab.configs.locked(vmid):
            locked_config = lab.configs.load(vmid)
            if not call.flag("skiplock"):
                check_lock(locked_config)
            if running(lab, vmid):
                raise TaskError(f"VM {vmid} is running - destroy failed")
            _destroy(lab, locked_config, unreferenced=call.flag("destroy-unreferenced-disks"))
            if call.flag("purge"):
                log.line(f"purging VM {vmid} from related configurations..")

    return call.start("qmdestroy", str(vmid), work)


def _destroy(lab: Lab, config: VmConfig, *, unreferenced: bool) -> None:
    vmid = config.vmid
    for values in (config.values, config.pending, *config.snapshots.values()):
        for key, value in values.items():
            if is_disk(key) or key.startswith("unused"):
                volume = owned_volume(vmid, key, value)
                if volume is not None:
                    remove_volume(lab, volume)
    if unreferenced:
        for image in lab.storages.owned(vmid):
            image.path.unlink(missing_ok=True)
    lab.guests.forget(vmid)
    for path in (lab.run_file(vmid), temporary_efivars(lab, vmid)):
        path.unlink(missing_ok=True)
    lab.configs.remove(vmid)


def _snapshots(call: Call) -> Any:
    config = call.lab.configs.load(call.vmid)
    listed = ("description", "snaptime", "parent", "vmstate")
    parent = {"parent": config.values["parent"]} if "parent" in config.values else {}
    return [
        {
            "name": name,
            **{
                key: int(value) if key == "snaptime" else value
                for key, value in values.items()
                if key in listed
            },
        }
        for name, values in sorted(config.snapshots.items())
    ] + [
        {
            **parent,
            "name": "current",
            "description": "You are here!",
            "digest": config.digest(),
            "running": int(running(call.lab, call.vmid)),
        }
    ]


def _current(call: Call) -> Any:
    return vm_status(call.lab, call.vmid, full=True)


ROUTES: tuple[Route, ...] = (
    Route("GET", "/nodes/{node}/qemu", _list, Params({"node": NODE, "full": BOOL})),
    Route("POST", "/nodes/{node}/qemu", _create, CREATE),
    Route(
        "DELETE",
        "/nodes/{node}/qemu/{vmid}",
        _delete,
        Params({**_VM, "purge": BOOL, "destroy-unreferenced-disks": BOOL, "skiplock": BOOL}),
        Need("/vms/{vmid}", ("VM.Allocate",)),
    ),
    Route("GET", "/nodes/{node}/qemu/{vmid}/config", _get_config, Params({**_VM, "current": BOOL}), _AUDIT),
    Route("PUT", "/nodes/{node}/qemu/{vmid}/config", _put_config, UPDATE, _CONFIG),
    Route("POST", "/nodes/{node}/qemu/{vmid}/config", _post_config, UPDATE_TASK, _CONFIG),
    Route("GET", "/nodes/{node}/qemu/{vmid}/pending", _pending, Params(_VM), _AUDIT),
    Route("GET", "/nodes/{node}/qemu/{vmid}/snapshot", _snapshots, Params(_VM), _AUDIT),
    Route("GET", "/nodes/{node}/qemu/{vmid}/status/current", _current, Params(_VM), _AUDIT),
)
