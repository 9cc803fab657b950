"""Reads what the API answers, and is total: what has another shape than expected is Unknown.

Types are Perl's: config `memory` is a string while `cores` is a number, so every value becomes text here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from provision.contracts.query import Unknown
from provision.proxmox.queries import (
    Creation,
    Elsewhere,
    PciMap,
    Rights,
    StorageEntry,
    VmEntry,
    VmState,
    Volume,
)
from provision.values.redaction import MASK


def rights(body: object) -> Rights | Unknown:
    """Read `/access/permissions`."""
    if not isinstance(body, Mapping):
        return Unknown("permissions have an unknown shape")
    return Rights(
        {
            str(path): {str(name): int(text(value) == "1") for name, value in entry.items()}
            for path, entry in body.items()
            if isinstance(entry, Mapping)
        }
    )


def vm_list(body: object, node: str) -> tuple[VmEntry, ...] | Unknown:
    """Read `/nodes/{node}/qemu`: the VMs of one node as they are now."""
    return _entries(body, node, "qemu")


def cluster_list(body: object) -> tuple[VmEntry, ...] | Unknown:
    """Read `/cluster/resources?type=vm`: VMs and containers of all nodes, some seconds old."""
    return _entries(body)


def _entries(body: object, node: str = "", kind: str = "") -> tuple[VmEntry, ...] | Unknown:
    if not isinstance(body, list):
        return Unknown("the VM list has an unknown shape")
    return tuple(
        VmEntry(
            vmid=int(text(mapping["vmid"])),
            node=node or text(mapping.get("node")),
            kind=kind or text(mapping.get("type")),
            name=text(mapping.get("name")),
            status=text(mapping.get("status")),
            tags=tags(text(mapping.get("tags"))),
            memory=_bytes(mapping.get("maxmem")) // (1024 * 1024),
            uptime=_bytes(mapping.get("uptime")),
        )
        for mapping in _mappings(body)
        if text(mapping.get("vmid")).isdecimal()
    )


def vm_state(entry: VmEntry, body: object) -> VmState | Unknown:
    """Read `/nodes/{node}/qemu/{vmid}/pending`: active and pending values side by side."""
    if not isinstance(body, list):
        return Unknown(f"the configuration of VM {entry.vmid} has an unknown shape")
    config: dict[str, str] = {}
    pending: dict[str, str | None] = {}
    for mapping in _mappings(body):
        key = text(mapping.get("key"))
        if mapping.get("value") is not None:
            config[key] = _value(key, mapping["value"])
        if text(mapping.get("delete")) in {"1", "2"}:
            pending[key] = None
        elif mapping.get("pending") is not None:
            pending[key] = _value(key, mapping["pending"])
    digest = config.pop("digest", "")
    return VmState(
        vmid=entry.vmid,
        name=config.get("name", entry.name),
        status=entry.status,
        config=MappingProxyType(config),
        pending=MappingProxyType(pending),
        digest=digest,
        uptime=entry.uptime,
    )


def creation(body: object, login: str) -> Creation | None:
    """Read `/nodes/{node}/tasks` for the newest task that made a VM of a number, or took one away.

    A task that runs has no end yet. A restore begins with the same lock as a creation, and a creation that
    ended well leaves more than the lock: what is there now is not what these have left.

    Args:
        body: the answer; what is no list of tasks names none.
        login: our own token or user, as the identifiers of its tasks have it.
    """
    tasks = filter(_counts, _mappings(body)) if isinstance(body, list) else ()
    newest = max(tasks, key=lambda task: _bytes(task.get("starttime")), default=None)
    if newest is None:
        return None
    upid = text(newest.get("upid"))
    own = newest.get("type") == "qmcreate" and bool(login) and upid.split(":")[-2:-1] == [login]
    status = newest.get("status")
    if text(status).startswith(("OK", "WARNINGS")):
        return None
    return Creation(upid, own, running=newest.get("endtime") is None and status is None)


def _counts(task: Mapping[str, object]) -> bool:
    """Whether a number has another VM, or none, after a task; a removal that failed has left it."""
    kind = task.get("type")
    return kind in ("qmcreate", "qmrestore") or (kind == "qmdestroy" and task.get("status") in (None, "OK"))


def without_passwords(body: object) -> object:
    """Return what an API answered without the password that cloud-init sets; nothing compares it."""
    if isinstance(body, list):
        return [without_passwords(item) for item in body]
    if not isinstance(body, Mapping):
        return body
    hidden = {"value", "pending"} if body.get("key") == "cipassword" else {"cipassword"}
    return {name: MASK if name in hidden else value for name, value in body.items()}


def _value(key: str, value: object) -> str:
    """Return a value of a VM's configuration as text; the password, which nothing compares, is not kept."""
    return MASK if key == "cipassword" else text(value)


def elsewhere(entry: VmEntry, state: object = None) -> Elsewhere:
    """Return what has the number of a VM that is not a VM of this node; `state` is its configuration."""
    if not isinstance(state, VmState):
        return Elsewhere(entry.node, entry.kind, entry.name)
    return Elsewhere(entry.node, entry.kind, entry.name, state.marker, state.local_devices)


def mappings(body: object) -> tuple[PciMap, ...] | Unknown:
    """Read `/cluster/mapping/pci` or `/cluster/mapping/usb` with a node's check."""
    if not isinstance(body, list):
        return Unknown("the mappings have an unknown shape")
    return tuple(
        PciMap(
            name=text(mapping.get("id")),
            entries=_texts(mapping.get("map")),
            problems=tuple(
                text(check.get("message")).strip()
                for check in _mappings(mapping.get("checks") or mapping.get("error"))
            ),
            digest=text(mapping.get("digest")),
            description=text(mapping.get("description")),
        )
        for mapping in _mappings(body)
    )


def volumes(body: object) -> tuple[Volume, ...] | Unknown:
    """Read `/nodes/{node}/storage/{storage}/content`."""
    if not isinstance(body, list):
        return Unknown("the storage's content has an unknown shape")
    return tuple(
        Volume(text(mapping.get("volid")), text(mapping.get("content")), _bytes(mapping.get("size")))
        for mapping in _mappings(body)
    )


def storages(body: object) -> tuple[StorageEntry, ...] | Unknown:
    """Read `/nodes/{node}/storage`; one that is disabled or bound to other nodes is there with enabled 0."""
    if not isinstance(body, list):
        return Unknown("the list of storages has an unknown shape")
    return tuple(
        StorageEntry(
            text(mapping.get("storage")),
            frozenset(text(mapping.get("content")).split(",")) - {""},
            enabled=text(mapping.get("enabled", 1)) == "1",
            active=text(mapping.get("active", 1)) == "1",
            available=_bytes(mapping["avail"]) // (1024 * 1024) if mapping.get("avail") is not None else None,
            kind=text(mapping.get("type")),
        )
        for mapping in _mappings(body)
        if mapping.get("storage")
    )


def bridges(body: object) -> tuple[str, ...] | Unknown:
    """Read `/nodes/{node}/network?type=any_bridge`: names."""
    if not isinstance(body, list):
        return Unknown("the list of bridges has an unknown shape")
    return tuple(text(mapping["iface"]) for mapping in _mappings(body) if mapping.get("iface"))


def log_lines(body: object) -> tuple[str, ...]:
    """Read a task's log: its lines without the closing verdict."""
    lines = (text(mapping.get("t")).rstrip() for mapping in _mappings(body))
    return tuple(line for line in lines if line and line != "TASK OK")


def tags(value: str) -> tuple[str, ...]:
    """Split tags; PVE joins them by semicolons and reads commas and blanks, too."""
    return tuple(word for word in value.replace(",", ";").replace(" ", ";").split(";") if word)


def text(value: object) -> str:
    """Return a value of Perl's JSON as text; None is empty."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(text(item) for item in value) if isinstance(value, list) else ()


def _bytes(value: object) -> int:
    digits = text(value)
    return int(digits) if digits.isdecimal() else 0


def _mappings(body: object) -> Iterator[Mapping[str, object]]:
    for item in body if isinstance(body, list) else ():
        if isinstance(item, Mapping):
            yield item
