"""What each request to a Proxmox VE API takes: one table for preflight and for `provision bootstrap`.

Source: the API's own `permissions`; of a VM's keys, qemu-server `PVE/API2/Qemu.pm`
(check_vm_modify_config_perm, check_storage_access), which checks the old value of a key, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from provision.contracts.remedy import Request
from provision.proxmox import formats

USER = "provision@pve"
"""The user that `provision bootstrap` makes, and gives the roles to."""
DOWNLOAD = "Sys.AccessNetwork"
"""What a download needs on a node, where the version knows it."""

Grant = tuple[str, str]
"""A path and a privilege on it."""
Need = tuple[tuple[Grant, ...], ...]
"""Alternatives of which one is enough, each of them grants that it takes together."""


def need(path: str, *any_of: str) -> Need:
    """Return the need of one of some privileges on a path."""
    return tuple(((path, privilege),) for privilege in any_of)


@dataclass(frozen=True, slots=True)
class Call:
    """One kind of request.

    Args:
        method: HTTP method.
        path: as in the API's schema, with `{node}`, `{vmid}`, `{id}`, `{storage}`, `{volume}`, `{upid}`.
        needs: all of them; their paths use the same names.
        has_keys: it sets keys of a VM, and needs what each of them takes, too.
    """

    method: str
    path: str
    needs: tuple[Need, ...] = ()
    has_keys: bool = False

    def match(self, request: Request) -> dict[str, str] | None:
        """Return the values of the names in the path if a request is of this kind."""
        if request.method != self.method:
            return None
        pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(self.path))
        match = re.fullmatch(pattern, request.path)
        return match.groupdict() if match is not None else None


_VM = "/vms/{vmid}"
_QEMU = "/nodes/{node}/qemu"
_CONTENT = "/nodes/{node}/storage/{storage}"
_SEE_STORAGE = need("/storage/{storage}", "Datastore.Audit", "Datastore.AllocateSpace")
_SEE_MAPPINGS = need("/mapping/pci", "Mapping.Audit", "Mapping.Use", "Mapping.Modify")
_SEE_USB = need("/mapping/usb", "Mapping.Audit", "Mapping.Use", "Mapping.Modify")
_POWER = need(_VM, "VM.PowerMgmt")
_FETCH: Need = ((("/nodes/{node}", DOWNLOAD),), (("/", "Sys.Audit"), ("/", "Sys.Modify")))

CALLS: tuple[Call, ...] = (
    Call("GET", "/access/permissions"),
    Call("GET", "/cluster/resources", (need(_VM, "VM.Audit"),)),
    Call("GET", _QEMU, (need(_VM, "VM.Audit"),)),
    Call("GET", f"{_QEMU}/{{vmid}}/pending", (need(_VM, "VM.Audit"),)),
    Call("POST", _QEMU, (need(_VM, "VM.Allocate"),), has_keys=True),
    Call("PUT", f"{_QEMU}/{{vmid}}/config", has_keys=True),
    Call("POST", f"{_QEMU}/{{vmid}}/config", has_keys=True),
    Call("PUT", f"{_QEMU}/{{vmid}}/unlink", (need(_VM, "VM.Config.Disk"),)),
    Call("PUT", f"{_QEMU}/{{vmid}}/resize", (need(_VM, "VM.Config.Disk"),), has_keys=True),
    Call("DELETE", f"{_QEMU}/{{vmid}}", (need(_VM, "VM.Allocate"),)),
    Call("POST", f"{_QEMU}/{{vmid}}/status/start", (_POWER,)),
    Call("POST", f"{_QEMU}/{{vmid}}/status/stop", (_POWER,)),
    Call("POST", f"{_QEMU}/{{vmid}}/status/shutdown", (_POWER,)),
    Call("GET", "/cluster/mapping/pci", (_SEE_MAPPINGS,)),
    Call("POST", "/cluster/mapping/pci", (need("/mapping/pci", "Mapping.Modify"),)),
    Call("PUT", "/cluster/mapping/pci/{id}", (need("/mapping/pci/{id}", "Mapping.Modify"),)),
    Call("DELETE", "/cluster/mapping/pci/{id}", (need("/mapping/pci", "Mapping.Modify"),)),
    Call("GET", "/cluster/mapping/usb", (_SEE_USB,)),
    Call("POST", "/cluster/mapping/usb", (need("/mapping/usb", "Mapping.Modify"),)),
    Call("PUT", "/cluster/mapping/usb/{id}", (need("/mapping/usb/{id}", "Mapping.Modify"),)),
    Call("DELETE", "/cluster/mapping/usb/{id}", (need("/mapping/usb", "Mapping.Modify"),)),
    # These lists show what the token may use; what it may not is looked up on the host.
    Call("GET", "/nodes/{node}/storage"),
    Call("GET", "/nodes/{node}/network"),
    Call("GET", f"{_CONTENT}/content", (_SEE_STORAGE,)),
    Call(
        "DELETE",
        f"{_CONTENT}/content/{{volume}}",
        (need("/storage/{storage}", "Datastore.Allocate"),),
    ),
    Call(
        "POST",
        f"{_CONTENT}/download-url",
        (need("/storage/{storage}", "Datastore.AllocateTemplate"), _FETCH),
    ),
    # The tasks are the token's own.
    Call("GET", "/nodes/{node}/tasks"),
    Call("GET", "/nodes/{node}/tasks/{upid}/status"),
    Call("GET", "/nodes/{node}/tasks/{upid}/log"),
)
"""Every request that this tool makes."""

_PLAIN = frozenset(
    {
        "vmid",
        "digest",
        "delete",
        "pool",
        "disk",
        "size",
        "force",
        "background_delay",
        "revert",
        "purge",
        "idlist",
    }
)
"""Parameters of these requests that are no keys of a VM; a pool costs nothing where VMs may be allocated."""
_BY_KEY: Mapping[str, str] = {
    **dict.fromkeys(("cores", "sockets", "cpu", "numa", "vcpus", "cpulimit", "cpuunits"), "CPU"),
    **dict.fromkeys(("memory", "balloon", "shares"), "Memory"),
    **dict.fromkeys(("machine", "scsihw", "smbios1", "vga", "serial", "hostpci", "usb", "tablet"), "HWType"),
    **dict.fromkeys(("scsi", "virtio", "sata", "ide", "efidisk", "tpmstate", "boot", "unused"), "Disk"),
    "net": "Network",
}
"""Part of `VM.Config.*` by key without its number; all others are options."""
_CLOUD_INIT = frozenset(
    {"cicustom", "ciuser", "cipassword", "ciupgrade", "sshkeys", "ipconfig", "nameserver"}
)
_DRIVES = frozenset({"scsi", "virtio", "sata", "ide", "efidisk", "tpmstate"})


def needs_of(request: Request, config: Mapping[str, str] | None = None) -> tuple[Need, ...]:
    """Return what a request takes.

    Args:
        request: one that the table knows.
        config: the VM's present configuration.

    Raises:
        LookupError: the table does not know it.
    """
    for call in CALLS:
        values = call.match(request)
        if values is None:
            continue
        data = {name: str(value) for name, value in request.data.items()}
        values = {"vmid": data.get("vmid", ""), **values}
        needs = [*call.needs]
        if call.has_keys:
            needs += _key_needs(data, config or {})
        return tuple(dict.fromkeys(_filled(each, values) for each in needs))
    raise LookupError(f"{request.method} {request.path}: its privileges are not in the table")


def _filled(alternatives: Need, values: Mapping[str, str]) -> Need:
    return tuple(
        tuple((path.format_map(values), privilege) for path, privilege in grants) for grants in alternatives
    )


def _key_needs(data: Mapping[str, str], config: Mapping[str, str]) -> Iterator[Need]:
    if "disk" in data:  # a disk that grows
        yield from _space(config.get(data["disk"], ""))
    for key in filter(None, data.get("delete", "").split(",")):
        yield from _of_key(key, "", config.get(key, ""))
    for key, value in data.items():
        if key not in _PLAIN:
            yield from _of_key(key, value, config.get(key, ""))


def _of_key(key: str, value: str, old: str) -> Iterator[Need]:
    base = key.rstrip("0123456789") if key != "smbios1" else key
    if base in _CLOUD_INIT:
        yield need(_VM, "VM.Config.Cloudinit", "VM.Config.Network")
        return
    if base in _DRIVES and _is_cdrom(value or old):
        yield need(_VM, "VM.Config.CDROM")
        return
    yield need(_VM, f"VM.Config.{_BY_KEY.get(base, 'Options')}")
    if base in _DRIVES:
        yield from _space(value)
    if base == "net":
        yield from _bridge(value)
    for bus, form in (("pci", formats.HOSTPCI), ("usb", formats.USB)):
        for text in filter(None, (value, old) if base in {bus, f"host{bus}"} else ()):
            mapping = formats.normal(text, form).get("mapping")
            if mapping:
                yield need(f"/mapping/{bus}/{mapping}", "Mapping.Use")
    if key == "startup":  # it changes how the host boots
        yield need("/", "Sys.Modify")


def _is_cdrom(text: str) -> bool:
    parts = formats.parse(text)
    return parts.get("media") == "cdrom" or parts.get("", "").endswith(":cloudinit")


def _space(text: str) -> Iterator[Need]:
    parts = formats.parse(text)
    storage, colon, _ = parts.get("", parts.get("file", "")).partition(":")
    if colon:
        yield need(f"/storage/{storage}", "Datastore.AllocateSpace")
    image, colon, _ = parts.get("import-from", "").partition(":")
    if colon:
        yield need(f"/storage/{image}", "Datastore.Audit", "Datastore.AllocateSpace")


def _bridge(text: str) -> Iterator[Need]:
    parts = formats.normal(text, formats.NET) if text else {}
    if parts.get("bridge"):
        tag = f"/{parts['tag']}" if parts.get("tag") else ""
        yield need(f"/sdn/zones/localnetwork/{parts['bridge']}{tag}", "SDN.Use")


# ---------------------------------------------------------------- bootstrap

_SAMPLES = {
    "cores": "1",
    "memory": "1",
    "machine": "q35",
    "name": "x",
    "scsi0": "s:1",
    "scsi1": "s:0,import-from=i:x",
    "ide2": "s:cloudinit",
    "ciuser": "x",
    "net0": "virtio=BC:24:11:00:00:00,bridge=b",
    "hostpci0": "mapping=m",
    "startup": "order=1",
}
"""One key of each kind that `_key_needs` knows."""


def _all_needs() -> Iterator[Need]:
    for call in CALLS:
        yield from call.needs
        if call.has_keys:
            yield from _key_needs(_SAMPLES, {})


def role(known: Iterable[str], root: bool = False) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the privileges of a role of ours among those that a version knows, and those that it lacks.

    Args:
        known: all privileges of the host's version (those of its role Administrator).
        root: of the role that is given on `/` alone, without its being inherited.
    """
    there = set(known)
    privileges: dict[str, None] = {}
    for alternatives in _all_needs():
        fit = [grants for grants in alternatives if all(privilege in there for _, privilege in grants)]
        # Both a right to see and a right to change are given: a list without the former is empty.
        for path, privilege in (fit or alternatives)[0]:
            if (path == "/") is root:
                privileges[privilege] = None
    return (
        tuple(privilege for privilege in privileges if privilege in there),
        tuple(privilege for privilege in privileges if privilege not in there),
    )


def paths(node: str, storages: Iterable[str]) -> tuple[str, ...]:
    """Return the paths on which the role is given, besides `/`: no wider than what is used.

    Args:
        node: node name in Proxmox VE.
        storages: names of the storages that are used.
    """
    used = tuple(f"/storage/{name}" for name in dict.fromkeys(storages))
    return ("/vms", *used, "/sdn/zones/localnetwork", "/mapping/pci", "/mapping/usb", f"/nodes/{node}")
