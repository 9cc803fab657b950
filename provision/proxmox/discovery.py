"""From a VM that exists to the node that declares it as it is: the plan after its import is empty."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from provision.inventory.grammar import CPU_FLAG, CPU_TYPE, MACHINE_TYPE
from provision.inventory.models.node import Node
from provision.proxmox import formats, vm_disks
from provision.proxmox.marker import TAG
from provision.proxmox.vm_files import VmFile
from provision.proxmox.yaml_text import comment, quoted

PROFILE = "discovered"
UNMANAGED = "unmanaged"
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._/+-]*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off"})
_NET = re.compile(r"net[0-9]+")
_TAG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_PVE_NAME = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(?:\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*")
_RESERVED = ("cluster", "router", "controller")


@dataclass(frozen=True, slots=True)
class Discovered:
    """A VM as a node.

    Args:
        key: its name in the inventory.
        node: what is declared of it.
        remarks: what the node does not say, for the reader.
        is_complete: whether that is a node; otherwise it lacks an address or network devices.
    """

    key: str
    node: Mapping[str, object]
    remarks: tuple[str, ...] = ()
    is_complete: bool = True

    @property
    def lines(self) -> list[str]:
        """The lines of the inventory; a VM that is no node yet is a comment."""
        remarks = [f"  {comment(remark)}" for remark in self.remarks]
        text = f"{self.key}: {flow(self.node)}"
        return [*remarks, f"  {text}" if self.is_complete else f"  # {text}"]


def key_of(node: str) -> str:
    """Return our own name for a node: Proxmox VE takes capitals, and a key of the inventory does not."""
    return re.sub(r"[^a-z0-9-]", "-", node.lower()).strip("-")[:63] or "pve"


def static_address(vm: VmFile) -> str:
    """Return the address that cloud-init gives to the first network device, empty without one."""
    address = formats.parse(vm.value("ipconfig0")).get("ip", "").partition("/")[0]
    try:
        return str(ipaddress.IPv4Address(address))
    except ValueError:
        return ""


def mac_of(vm: VmFile) -> str:
    """Return the MAC address of the first network device, upper-case; empty without one."""
    return formats.normal(vm.value("net0"), formats.NET).get("macaddr", "")


def agent_address(output: str, mac: str) -> str:
    """Return the first address of a network device from what `qm guest cmd` prints; empty for garbage."""
    try:
        rows = json.loads(output)
    except (ValueError, RecursionError):
        return ""
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, dict) or str(row.get("hardware-address", "")).upper() != mac:
            continue
        held = row.get("ip-addresses")
        for entry in held if isinstance(held, list) else ():
            if isinstance(entry, dict) and entry.get("ip-address-type") == "ipv4":
                return str(entry.get("ip-address", ""))
    return ""


def discovered(
    hypervisor: str,
    bridge: str,
    network: ipaddress.IPv4Network,
    vms: Sequence[VmFile],
    addresses: Mapping[int, str],
) -> tuple[Discovered, ...]:
    """Return the VMs of a host as nodes.

    Args:
        hypervisor: key of the host in the inventory.
        bridge: the bridge of VMs that name none.
        network: of the site: nodes are inside of it.
        vms: the host's VMs.
        addresses: by VMID, as far as they are known; each is used once.
    """
    taken = {hypervisor, *_RESERVED}
    held: set[str] = set()
    macs: list[str] = []
    names = [vm.value("name") for vm in vms]
    rows: list[Discovered] = []
    for vm in vms:
        name = vm.value("name")
        if vm.value("template") == "1":
            continue
        key = key_of(name) if name else f"vm-{vm.vmid}"
        key = f"{key[:50]}-{vm.vmid}" if key in taken else key
        taken.add(key)
        address = addresses.get(vm.vmid, "")
        remarks = _remarks(vm)
        if not address:
            remarks.append(f"VM {vm.vmid}: its address is unknown; add `address: ...` and remove the `#`")
        elif address in held or not _is_host(address, network):
            reason = (
                "belongs to another VM" if address in held else f"is not an address for a host in {network}"
            )
            remarks.append(f"VM {vm.vmid}: {address} {reason}; write the right address and remove the `#`")
            address = ""
        held.add(address)
        ours = {} if key == name else {"vm_name": _vm_name(name, names)}
        node = {
            "profile": PROFILE,
            "vmid": vm.vmid,
            **({"address": address} if address else {}),
            **ours,
            **_hardware(vm),
            **_devices(vm, bridge, remarks),
        }
        is_complete = bool(address and node["nics"])
        if is_complete and (reason := _refusal(key, node) or _taken_mac(vm, macs)):
            remarks.append(f"VM {vm.vmid} has what an inventory cannot declare: {reason}")
            is_complete = False
        if is_complete:
            macs += _macs(vm)
        rows.append(Discovered(key, node, tuple(remarks), is_complete))
    return tuple(rows)


def _refusal(key: str, node: Mapping[str, object]) -> str:
    """Return why the inventory would refuse a node, empty where it takes it."""
    try:
        Node.model_validate({"name": key, **node})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return ""


def _macs(vm: VmFile) -> list[str]:
    devices = (formats.normal(vm.value(key), formats.NET) for key in vm.config if _NET.fullmatch(key))
    return [device.get("macaddr", "") for device in devices]


def _taken_mac(vm: VmFile, macs: Sequence[str]) -> str:
    """Return which MAC address of a VM is there twice, as in copied configurations; empty if none."""
    own = _macs(vm)
    twice = next((mac for mac in own if mac in macs or own.count(mac) > 1), "")
    return twice and f"the MAC address {twice} is there twice"


def _is_host(address: str, network: ipaddress.IPv4Network) -> bool:
    try:
        parsed = ipaddress.IPv4Address(address)
    except ValueError:
        return False
    return parsed in network and parsed not in {network.network_address, network.broadcast_address}


def _vm_name(name: str, names: Sequence[str]) -> str:
    """Return a name that the inventory can declare: only one VM may have it."""
    is_valid = _PVE_NAME.fullmatch(name) is not None and names.count(name) == 1
    return name if is_valid else UNMANAGED


def _remarks(vm: VmFile) -> list[str]:
    remarks: list[str] = []
    if vm.marker is not None:
        remarks.append(f"VM {vm.vmid} is node {vm.marker.node} of the inventory {vm.marker.inventory}")
    passed = [vm.value(f"hostpci{index}") for index in range(16)]
    remarks += [f"VM {vm.vmid} takes a card of the host: {value}" for value in passed if value]
    return remarks


def _hardware(vm: VmFile) -> dict[str, object]:
    """Return the settings without devices, as far as the configuration names them."""
    node: dict[str, object] = {}
    for key in ("cores", "sockets"):
        if vm.value(key).isdecimal():
            node[key] = int(vm.value(key))
    memory = formats.normal(vm.value("memory"), formats.MEMORY)["current"]
    if memory.isdecimal() and int(memory):
        node["memory"] = _size(int(memory))
    if vm.value("balloon").isdecimal():
        balloon = int(vm.value("balloon"))
        node["balloon"] = _size(balloon) if balloon else "off"
    for key, name in (("numa", "numa"), ("protection", "protection"), ("onboot", "start_at_boot")):
        if vm.value(key) in {"0", "1"}:
            node[name] = vm.value(key) == "1"
    if vm.value("agent"):
        node["agent"] = formats.normal(vm.value("agent"), formats.AGENT)["enabled"] == "1"
    node |= _machine(vm)
    node |= _cpu(vm)
    startup = formats.explicit(vm.value("startup"), formats.STARTUP)
    numbers = {key: int(value) for key, value in startup.items() if value.isdecimal()}
    if numbers and numbers.keys() == startup.keys() <= {"order", "up", "down"}:
        node["startup"] = numbers
    tags = [tag for tag in re.split("[;, ]", vm.value("tags")) if tag and tag != TAG]
    if tags and all(map(_TAG.fullmatch, tags)):
        node["tags"] = tags
    return node


def _machine(vm: VmFile) -> dict[str, object]:
    machine = formats.normal(vm.value("machine"), formats.MACHINE)["type"]
    node: dict[str, object] = {"machine": "i440fx" if machine == "pc" else machine}
    if re.fullmatch(MACHINE_TYPE, str(node["machine"])) is None:
        node = {"machine": "q35" if "q35" in machine else "i440fx"}
    efi = vm.value("efidisk0")
    if vm.value("bios") != "ovmf":
        node["bios"] = "seabios"
    elif efi:  # without its disk, declared firmware would add one
        node["bios"] = "ovmf"
        if formats.normal(efi, formats.EFIDISK)["pre-enrolled-keys"] == "1":
            node["efi"] = {"pre_enrolled_keys": True}
    version = formats.normal(vm.value("tpmstate0"), formats.TPMSTATE)["version"]
    if vm.value("tpmstate0") and version in {"v1.2", "v2.0"}:
        node["tpm"] = {"version": version}
    return node


def _cpu(vm: VmFile) -> dict[str, object]:
    parts = formats.explicit(vm.value("cpu"), formats.CPU)
    kind, flags = parts.get("cputype", ""), [flag for flag in parts.get("flags", "").split(";") if flag]
    cpu: dict[str, object] = {"type": kind} if re.fullmatch(CPU_TYPE, kind) else {}
    if flags and all(re.fullmatch(CPU_FLAG, flag) for flag in flags):
        cpu["flags"] = flags
    return {"cpu": cpu} if cpu else {}


def _devices(vm: VmFile, bridge: str, remarks: list[str]) -> dict[str, object]:
    node: dict[str, object] = {}
    node["nics"] = _nics(vm, bridge)
    if not node["nics"]:
        remarks.append(
            f"VM {vm.vmid} has no network devices net0, net1, ... with a bridge: it cannot be a node"
        )
    slots = vm_disks.disks_of(tuple(vm.config), vm.value)
    sizes = [
        formats.size_gib(formats.normal(vm.value(slot), formats.DRIVE).get("size", "")) for slot in slots
    ]
    if not all(size >= 1 and size == int(size) for size in sizes):
        remarks.append(f"VM {vm.vmid}: a disk is not a whole number of GiB, so its disks are left alone")
    elif sizes:
        node["disk"] = f"{int(sizes[0])}GiB"
        if sizes[1:]:
            node["disks"] = [
                {"size": f"{int(size)}GiB", "slot": slot}
                for slot, size in zip(slots[1:], sizes[1:], strict=True)
            ]
    return node


def _nics(vm: VmFile, bridge: str) -> list[dict[str, object]]:
    """Return the network devices; none if their numbers have gaps or one of them cannot be declared."""
    count = sum(_NET.fullmatch(key) is not None for key in vm.config)
    nics: list[dict[str, object]] = []
    for index in range(count):
        parts = formats.normal(vm.value(f"net{index}"), formats.NET)
        if not parts.get("macaddr") or not parts.get("bridge") or int(parts["macaddr"][:2], 16) & 1:
            return []
        nic: dict[str, object] = {} if parts["bridge"] == bridge else {"bridge": parts["bridge"]}
        if parts["model"] != "virtio":
            nic["model"] = parts["model"]
        nic["mac"] = parts["macaddr"].lower()
        if parts.get("tag", "").isdecimal():
            nic["vlan"] = int(parts["tag"])
        nics.append(nic)
    return nics


def _size(mebibytes: int) -> str:
    return f"{mebibytes}MiB" if mebibytes % 1024 else f"{mebibytes // 1024}GiB"


def flow(value: object) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, Mapping):
        return (
            "{ " + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + " }" if value else "{}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    is_plain = isinstance(value, int) or (_PLAIN.fullmatch(text) and text.lower() not in _WORDS)
    return text if is_plain else quoted(text)
