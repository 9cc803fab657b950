"""`/cluster`: resources, status, free VM numbers; and `/pools`, which the lab has none of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from provision.lab.api.core import Call, Need, Route
from provision.lab.api.errors import bad_parameter
from provision.lab.api.node_routes import node_summary
from provision.lab.api.schema import Field, Params
from provision.lab.api.status import vm_status

_FIRST_ID = 100


def _next_id(call: Call) -> str:
    taken = set(call.lab.configs.ids())
    if "vmid" in call.params:
        if call.number("vmid") in taken:
            raise bad_parameter("vmid", f"VM {call.number('vmid')} already exists")
        return str(call.number("vmid"))
    return str(next(vmid for vmid in range(_FIRST_ID, _FIRST_ID + len(taken) + 1) if vmid not in taken))


def _vms(call: Call) -> Iterator[dict[str, Any]]:
    """Yield the VMs that are there now, with what pvestatd has seen of them: up to ten seconds old."""
    cached = call.lab.figures(lambda: {vmid: vm_status(call.lab, vmid) for vmid in call.lab.configs.ids()})
    for vmid in call.lab.configs.ids():
        if not call.may(f"/vms/{vmid}", "VM.Audit"):
            continue
        status = dict(cached.get(vmid, {"vmid": vmid, "status": "unknown", "cpus": 0}))
        status["maxcpu"] = status.pop("cpus")
        for key in [key for key in status if key == "pid" or key.startswith("pressure")]:
            del status[key]
        extra = {"id": f"qemu/{status['vmid']}", "type": "qemu", "node": call.lab.node, "template": 0}
        yield status | extra | {"diskread": 0, "diskwrite": 0}


def _storages(call: Call) -> Iterator[dict[str, Any]]:
    for name, storage in call.lab.storages.all.items():
        if call.may(f"/storage/{name}", "Datastore.Audit", "Datastore.AllocateSpace", some=True):
            total, used, _ = call.lab.storages.usage(storage)
            yield {
                "id": f"storage/{call.lab.node}/{name}",
                "type": "storage",
                "storage": name,
                "node": call.lab.node,
                "plugintype": storage.kind,
                "content": ",".join(storage.content),
                "status": "available",
                "shared": 0,
                "disk": used,
                "maxdisk": total,
            }


def _resources(call: Call) -> Any:
    kind = call.text("type")
    result: list[dict[str, Any]] = []
    if kind in {"", "vm"}:
        result += _vms(call)
    if kind in {"", "node"} and call.may(f"/nodes/{call.lab.node}", "Sys.Audit"):
        result.append(node_summary(call.lab))
    if kind in {"", "storage"}:
        result += _storages(call)
    return result


def _status(call: Call) -> Any:
    lab = call.lab
    return [
        {
            "id": f"node/{lab.node}",
            "type": "node",
            "name": lab.node,
            "nodeid": 0,
            "ip": re.sub(r"/\d+$", "", lab.address),
            "level": "",
            "local": 1,
            "online": 1,
        }
    ]


def _pools(_call: Call) -> Any:
    return []


ROUTES: tuple[Route, ...] = (
    Route("GET", "/cluster/nextid", _next_id, Params({"vmid": Field("integer", minimum=_FIRST_ID)})),
    Route(
        "GET",
        "/cluster/resources",
        _resources,
        Params({"type": Field(choices=("vm", "storage", "node", "sdn"))}),
    ),
    Route("GET", "/cluster/status", _status, need=Need("/", ("Sys.Audit",))),
    Route("GET", "/pools", _pools),
)
