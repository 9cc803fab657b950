"""`/nodes`: status, network, PCI hardware and capabilities of the one node."""

from __future__ import annotations

import shutil
from typing import Any

from provision.lab.api.access import SUPERUSER, Auth
from provision.lab.api.access_routes import VERSION
from provision.lab.api.core import NODE, Call, Lab, Need, Route
from provision.lab.api.errors import failed
from provision.lab.api.power import reboot_node
from provision.lab.api.schema import Field, Params

_NODE = {"node": NODE}
_DEFAULT_BLACKLIST = "05;06;0b"
_MACHINES = ("11.0", "10.2", "10.1", "10.0", "9.2")


def node_summary(lab: Lab) -> dict[str, Any]:
    """Return the node's entry of lists."""
    facts = lab.facts()
    disk = shutil.disk_usage(lab.folder)
    return {
        "id": f"node/{lab.node}",
        "node": lab.node,
        "type": "node",
        "status": "online",
        "level": "",
        "cpu": 0,
        "maxcpu": facts["cpus"],
        "mem": 0,
        "maxmem": facts["memory"],
        "disk": disk.used,
        "maxdisk": disk.total,
        "uptime": 1,
    }


def _nodes(call: Call) -> Any:
    summary = node_summary(call.lab)
    if call.may(f"/nodes/{call.lab.node}", "Sys.Audit"):
        return [summary]
    return [{key: summary[key] for key in ("id", "node", "type", "status")}]


def _status(call: Call) -> Any:
    facts = call.lab.facts()
    disk = shutil.disk_usage(call.lab.folder)
    total, kernel = int(facts["memory"]), str(facts["kernel"])
    free = int(facts.get("memory_free", total))
    mode = {"mode": facts["boot_mode"]} | ({"secureboot": 0} if facts["boot_mode"] == "efi" else {})
    return {
        "boot-info": mode,
        "cpu": 0,
        "cpuinfo": {
            "cpus": facts["cpus"],
            "cores": facts["cpus"],
            "sockets": 1,
            "model": "lab",
            "family": "0",
            "vendor": "lab",
            "mhz": "0",
            "hvm": "",
            "flags": "",
            "user_hz": 100,
        },
        "current-kernel": {"sysname": "Linux", "release": kernel, "version": "lab", "machine": "x86_64"},
        "idle": 0,
        "ksm": {"shared": 0},
        "kversion": f"Linux {kernel}",
        "loadavg": ["0.00", "0.00", "0.00"],
        "memory": {"total": total, "free": free, "available": free, "used": total - free},
        "pveversion": f"pve-manager/{VERSION}/lab",
        "rootfs": {"total": disk.total, "used": disk.used, "free": disk.free, "avail": disk.free},
        "swap": {"total": 0, "used": 0, "free": 0},
        "uptime": int(facts.get("uptime", 1)),
        "wait": 0,
    }


def _command(call: Call) -> None:
    if call.text("command") != "reboot":
        raise failed("the lab's node can be rebooted, not shut down")
    lab = call.lab
    lab.tasks.start(Auth(SUPERUSER), "stopall", "", lambda log: reboot_node(lab, log))


def _bridge(lab: Lab, index: int) -> dict[str, Any]:
    if _kind(lab.bridges[index]) == "OVSBridge":
        return {"type": "OVSBridge", "active": 1, "autostart": 1, "method": "manual", "priority": index + 1}
    bridge: dict[str, Any] = {
        "type": "bridge",
        "active": 1,
        "autostart": 1,
        "bridge_fd": "0",
        "bridge_ports": "",
        "bridge_stp": "off",
        "families": ["inet"],
        "method": "manual",
        "method6": "manual",
        "priority": index + 1,
    }
    if index == 0:
        address, _, length = lab.address.partition("/")
        bridge |= {"method": "static", "address": address, "netmask": length, "cidr": lab.address}
    return bridge


def _kind(bridge: str) -> str:
    return "OVSBridge" if bridge.startswith("ovs") else "bridge"


def _network(call: Call) -> Any:
    kind = call.text("type")
    return [
        {"iface": name, **_bridge(call.lab, index)}
        for index, name in enumerate(call.lab.bridges)
        if kind in {"", "any_bridge", "any_local_bridge", _kind(name)}
        if call.may(f"/nodes/{call.lab.node}", "Sys.Audit")
        or call.may(f"/sdn/zones/localnetwork/{name}", "SDN.Audit", "SDN.Use", some=True)
    ]


def _interface(call: Call) -> Any:
    name = call.text("iface")
    if name not in call.lab.bridges:
        raise failed("interface does not exist")
    return _bridge(call.lab, call.lab.bridges.index(name))


def _pci(call: Call) -> Any:
    blacklist = [word for word in call.text("pci-class-blacklist", _DEFAULT_BLACKLIST).split(";") if word]
    return [
        {
            "id": address,
            "class": f"0x{device.cls}",
            "vendor": f"0x{device.vendor}",
            "device": f"0x{device.device}",
            "subsystem_vendor": f"0x{device.subsystem_vendor}",
            "subsystem_device": f"0x{device.subsystem_device}",
            "iommugroup": device.iommu_group,
        }
        for address, device in sorted(call.lab.pci().items())
        if not any(device.cls.startswith(prefix) for prefix in blacklist)
    ]


def _pci_methods(_call: Call) -> Any:
    return [{"method": "mdev"}]


def _machines(_call: Call) -> Any:
    return [
        {"id": f"pc-{kind}-{version}", "type": kind, "version": version}
        for version in _MACHINES
        for kind in ("i440fx", "q35")
    ]


def _cpus(_call: Call) -> Any:
    return [{"name": name, "vendor": "default", "custom": 0} for name in ("host", "max", "kvm64", "qemu64")]


_AUDIT = Need("/nodes/{node}", ("Sys.Audit",))
_HARDWARE = Need("/", ("Sys.Audit", "Sys.Modify"), some=True)

ROUTES: tuple[Route, ...] = (
    Route("GET", "/nodes", _nodes),
    Route("GET", "/nodes/{node}/status", _status, Params(_NODE), _AUDIT),
    Route(
        "POST",
        "/nodes/{node}/status",
        _command,
        Params({**_NODE, "command": Field(required=True, choices=("reboot", "shutdown"))}),
        Need("/nodes/{node}", ("Sys.PowerMgmt",)),
    ),
    Route("GET", "/nodes/{node}/network", _network, Params({**_NODE, "type": Field()})),
    Route(
        "GET",
        "/nodes/{node}/network/{iface}",
        _interface,
        Params({**_NODE, "iface": Field(required=True)}),
        _AUDIT,
    ),
    Route(
        "GET",
        "/nodes/{node}/hardware/pci",
        _pci,
        Params({**_NODE, "pci-class-blacklist": Field(), "verbose": Field("boolean")}),
        _HARDWARE,
    ),
    Route(
        "GET",
        "/nodes/{node}/hardware/pci/{device}",
        _pci_methods,
        Params({**_NODE, "device": Field(required=True)}),
    ),
    Route("GET", "/nodes/{node}/capabilities/qemu/machines", _machines, Params(_NODE)),
    Route("GET", "/nodes/{node}/capabilities/qemu/cpu", _cpus, Params(_NODE)),
)
