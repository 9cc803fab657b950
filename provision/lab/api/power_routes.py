"""`/nodes/{node}/qemu/{vmid}/status/*` and `agent/*`."""

from __future__ import annotations

from typing import Any

from provision.lab.api.changes import running
from provision.lab.api.cloudinit import instance_id, network_data, user_data
from provision.lab.api.core import NODE, Call, Need, Route
from provision.lab.api.errors import bad_parameter, failed
from provision.lab.api.power import STOP_SECONDS, reboot_guest, shut_down_guest, start_guest, stop_guest
from provision.lab.api.schema import Field, Params
from provision.lab.api.status import has_agent
from provision.lab.api.vmschema import VMID

BOOL = Field("boolean")
_TIMEOUT = Field("integer", minimum=0)
_VM = {"node": NODE, "vmid": VMID}
_POWER = Need("/vms/{vmid}", ("VM.PowerMgmt",))


def _skiplock(call: Call) -> bool:
    if call.flag("skiplock") and not call.auth.is_root:
        raise bad_parameter("skiplock", "Only root may use this option.")
    return call.flag("skiplock")


def _start(call: Call) -> str:
    skip = _skiplock(call)
    return call.start(
        "qmstart", str(call.vmid), lambda log: start_guest(call.lab, call.vmid, log, skiplock=skip)
    )


def _stop(call: Call) -> str:
    skip = _skiplock(call)
    return call.start("qmstop", str(call.vmid), lambda _log: stop_guest(call.lab, call.vmid, skiplock=skip))


def _shutdown(call: Call) -> str:
    timeout = call.number("timeout", STOP_SECONDS)
    force = call.flag("forceStop")
    return call.start(
        "qmshutdown",
        str(call.vmid),
        lambda log: shut_down_guest(call.lab, call.vmid, log, timeout, force=force),
    )


def _reboot(call: Call) -> str:
    call.lab.configs.load(call.vmid)
    if not running(call.lab, call.vmid):
        raise failed(f"VM {call.vmid} not running")
    timeout = call.number("timeout", STOP_SECONDS)
    return call.start("qmreboot", str(call.vmid), lambda log: reboot_guest(call.lab, call.vmid, log, timeout))


def _agent(call: Call) -> Any:
    values = call.lab.configs.load(call.vmid).values
    if not has_agent(values):
        raise failed("No QEMU guest agent configured")
    if not running(call.lab, call.vmid):
        raise failed(f"VM {call.vmid} is not running")
    # The lab gives its guests no agent channel.
    raise failed("QEMU guest agent is not running")


def _dump(call: Call) -> str:
    values = call.lab.configs.load(call.vmid).merged()
    kind = call.text("type")
    if kind == "network":
        return network_data(values)
    if kind == "meta":
        return f"instance-id: {instance_id(call.vmid, values)}\n"
    return user_data(call.vmid, values)


_AGENT = Need("/vms/{vmid}", ("VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted"), some=True)
_BASE = "/nodes/{node}/qemu/{vmid}"

ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        f"{_BASE}/status/start",
        _start,
        Params({**_VM, "skiplock": BOOL, "timeout": _TIMEOUT}),
        _POWER,
    ),
    Route(
        "POST",
        f"{_BASE}/status/stop",
        _stop,
        Params({**_VM, "skiplock": BOOL, "timeout": _TIMEOUT, "overrule-shutdown": BOOL, "keepActive": BOOL}),
        _POWER,
    ),
    Route(
        "POST",
        f"{_BASE}/status/shutdown",
        _shutdown,
        Params({**_VM, "skiplock": BOOL, "timeout": _TIMEOUT, "forceStop": BOOL, "keepActive": BOOL}),
        _POWER,
    ),
    Route("POST", f"{_BASE}/status/reboot", _reboot, Params({**_VM, "timeout": _TIMEOUT}), _POWER),
    Route("POST", f"{_BASE}/agent/ping", _agent, Params(_VM), _AGENT),
    *(
        Route("GET", f"{_BASE}/agent/{name}", _agent, Params(_VM), _AGENT)
        for name in ("network-get-interfaces", "get-osinfo", "get-host-name", "info")
    ),
    Route(
        "GET",
        f"{_BASE}/cloudinit/dump",
        _dump,
        Params({**_VM, "type": Field(required=True, choices=("user", "network", "meta"))}),
        Need("/vms/{vmid}", ("VM.Audit",)),
    ),
)
