"""What a VM's state looks like in lists."""

from __future__ import annotations

import contextlib
import re
import time
from typing import Any

from provision.lab.api.core import Call, Lab
from provision.lab.api.disks import boot_disk, drive_size
from provision.lab.api.errors import ApiError
from provision.lab.api.schema import parse_parts
from provision.lab.api.store import read_json
from provision.lab.api.vmschema import VM

DEFAULT_MEMORY = 512


def parts_of(key: str, values: dict[str, str]) -> dict[str, str]:
    """Return a property string's parts, or nothing when the key is not set."""
    spec = VM.find(key)
    return parse_parts(spec, values[key]) if spec is not None and key in values else {}


def memory_of(values: dict[str, str]) -> int:
    """Return a VM's memory in MiB."""
    return int(parts_of("memory", values).get("current", DEFAULT_MEMORY))


def cores_of(values: dict[str, str]) -> int:
    """Return a VM's virtual processors."""
    return int(values.get("cores", "1")) * int(values.get("sockets", "1"))


def has_agent(values: dict[str, str]) -> bool:
    """Say whether a VM is configured with a guest agent."""
    return parts_of("agent", values).get("enabled", "0") == "1"


def vm_list(call: Call) -> list[dict[str, Any]]:
    """Return the VMs that the caller may see; one that vanishes meanwhile is left out."""
    result = []
    for vmid in call.lab.configs.ids():
        if call.may(f"/vms/{vmid}", "VM.Audit"):
            with contextlib.suppress(ApiError):
                result.append(vm_status(call.lab, vmid))
    return result


def vm_status(lab: Lab, vmid: int, *, full: bool = False) -> dict[str, Any]:
    """Return a VM's entry of the list, or with `full` of `status/current`."""
    values = lab.configs.load(vmid).values
    pid = lab.guests.pid(vmid)
    host_cpus = lab.cpus()
    cpus = cores_of(values)
    result: dict[str, Any] = {
        "vmid": vmid,
        "name": values.get("name", f"VM {vmid}"),
        "status": "stopped" if pid is None else "running",
        "cpus": cpus if host_cpus is None else min(cpus, host_cpus),
        "maxmem": memory_of(values) << 20,
        "maxdisk": drive_size(values, boot_disk(values)),
        "uptime": 0,
        **dict.fromkeys(("cpu", "disk", "mem", "memhost", "netin", "netout"), 0),
    }
    result |= {key: values[key] for key in ("lock", "tags") if key in values}
    if any(re.fullmatch(r"serial\d", key) for key in values):
        result["serial"] = 1
    if values.get("template") == "1":
        result["template"] = 1
    if int(values.get("balloon", "0")):
        result["balloon_min"] = int(values["balloon"]) << 20
        result["shares"] = int(values.get("shares", "1000"))
    if pid is not None:
        kinds = (f"pressure{what}{how}" for what in ("cpu", "io", "memory") for how in ("full", "some"))
        result |= dict.fromkeys(kinds, 0)
        started = read_json(lab.run_file(vmid), {}).get("started", time.time())
        result |= {"pid": pid, "uptime": max(1, int(time.time() - started))}
    if full:
        result |= {"qmpstatus": result["status"], "ha": {"managed": 0}}
        if has_agent(values):
            result["agent"] = 1
        if pid is not None:
            nics = sorted(key for key in values if key.startswith("net"))
            result["nics"] = {
                f"tap{vmid}i{key.removeprefix('net')}": {"netin": 0, "netout": 0} for key in nics
            }
    return result
