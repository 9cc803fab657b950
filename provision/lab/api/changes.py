"""Changing a VM's configuration: rights by key, normal forms, what applies now and what waits."""

from __future__ import annotations

import base64
import re
import secrets
import struct
from urllib.parse import unquote

from provision.lab.api.configs import VmConfig, check_lock
from provision.lab.api.core import Call, Lab
from provision.lab.api.disks import (
    Allocation,
    check_boot,
    check_drive,
    drive_parts,
    is_cdrom,
    is_cloud_drive,
    owned_volume,
    remove_volume,
)
from provision.lab.api.errors import ApiError, TaskError, bad_parameter, failed
from provision.lab.api.schema import parse_parts, print_parts
from provision.lab.api.tasks import TaskLog
from provision.lab.api.vmschema import CLOUD_INIT, HOSTPCI, NET, VM, base_name, is_disk, privilege_of
from provision.lab.contracts import GuestError

# What a running VM takes over at once; the rest waits for a power cycle. The lab's guests cannot plug devices
# while they run, so network devices and disks wait too (the real one plugs them).
AT_ONCE = (
    frozenset(
        ["description", "hookscript", "lock", "name", "onboot", "protection", "shares", "startup", "tags"]
    )
    | CLOUD_INIT
)

_MAC_PREFIX = "BC:24:11"
_KEY = re.compile(r"(?P<type>(ssh|ecdsa|sk)-[\w@.-]+)\s+(?P<blob>[A-Za-z0-9+/]+=*)(\s+.*)?")


def split_list(text: str) -> list[str]:
    """Split a list parameter at commas, semicolons or blanks."""
    return [word for word in re.split(r"[,; ]+", text) if word]


def check_key_rights(call: Call, key: str, value: str | None, old: str | None) -> None:
    """Raise unless the caller may set (or, with no value, delete) a key of the VM.

    Raises:
        ApiError: 403, or 500 for what only root's own ticket may do.
    """
    if call.auth.is_root:
        return
    path = f"/vms/{call.vmid}"
    privilege = privilege_of(key)
    base = base_name(key)
    if privilege == "root" or (base == "serial" and (value or old) != "socket"):
        raise failed(f"only root can set '{key}' config")
    if base == "hostpci":
        _check_card_rights(call, key, value, old)
    if base == "usb":
        _check_usb_rights(call, key, value, old)
    bridge = parse_parts(NET, value).get("bridge") if base == "net" and value is not None else None
    if bridge is not None:
        call.check(f"/sdn/zones/localnetwork/{bridge}", "SDN.Use")
    if key == "startup":
        call.check("/", "Sys.Modify")
    if privilege == "VM.Config.Cloudinit":
        call.check(path, "VM.Config.Cloudinit", "VM.Config.Network", some=True)
    elif is_disk(key) and is_cdrom(key, value or old or "none"):
        call.check(path, "VM.Config.CDROM")
    else:
        call.check(path, privilege)


def _check_usb_rights(call: Call, key: str, value: str | None, old: str | None) -> None:
    for text in filter(None, (value, old)):
        mapping = re.search(r"\bmapping=([\w-]+)", text)
        if mapping is None and not re.search(r"\bspice\b", text):
            raise failed(f"only root can set '{key}' config for real devices")
        if mapping is not None:
            call.check(f"/mapping/usb/{mapping[1]}", "Mapping.Use")


def _check_card_rights(call: Call, key: str, value: str | None, old: str | None) -> None:
    for text in filter(None, (value, old)):
        mapping = parse_parts(HOSTPCI, text).get("mapping")
        if mapping is None:
            raise failed(f"only root can set '{key}' config for non-mapped devices")
        call.check(f"/mapping/pci/{mapping}", "Mapping.Use")


def new_mac() -> str:
    """Return a random MAC with the vendor prefix that Proxmox VE uses."""
    return ":".join([_MAC_PREFIX, *(f"{token_byte:02X}" for token_byte in secrets.token_bytes(3))])


def normalise(key: str, value: str) -> str:
    """Return a value as it is stored: network devices and tags are rewritten, the rest stays as sent."""
    if base_name(key) == "net":
        parts = parse_parts(NET, value)
        model = parts.pop("model")
        parts[model] = parts.pop("macaddr", "") or new_mac()
        return print_parts(parts, model, keyless=False)
    if key == "tags":
        return ";".join(sorted({tag.lower() for tag in re.split(r"[;, ]+", value) if tag}))
    return value


def check_ssh_keys(text: str) -> None:
    """Raise unless each line is an SSH public key."""
    for line in unquote(text).strip().splitlines():
        match = _KEY.fullmatch(line.strip())
        if (
            line.strip()
            and not line.startswith("#")
            and not (match and _is_key(match["type"], match["blob"]))
        ):
            raise failed("SSH public key validation error")


def _is_key(kind: str, blob: str) -> bool:
    try:
        data = base64.b64decode(blob, validate=True)
        fields = []
        while data:
            (size,) = struct.unpack(">I", data[:4])
            if len(data) < 4 + size:
                return False
            fields.append(data[4 : 4 + size])
            data = data[4 + size :]
    except (ValueError, struct.error):
        return False
    return len(fields) > 1 and fields[0] == kind.encode()


def check_hostpci(values: dict[str, str]) -> None:
    """Raise unless each passed-through device names a mapping or an address; PVE 9 takes both, too."""
    for key, value in values.items():
        if base_name(key) == "hostpci":
            parts = parse_parts(HOSTPCI, value)
            if "host" not in parts and "mapping" not in parts:
                raise bad_parameter(key, "Either 'host' or 'mapping' needs to be set.")


def running(lab: Lab, vmid: int) -> bool:
    """Say whether a VM's guest runs."""
    return lab.guests.pid(vmid) is not None


def vm_values(call: Call) -> dict[str, str]:
    """Return the VM's own keys among a request's parameters."""
    return {key: str(value) for key, value in call.params.items() if VM.find(key) is not None}


def _named(call: Call, word: str, values: dict[str, str]) -> list[str]:
    keys = split_list(call.text(word))
    for key in keys:
        if key in values:
            raise bad_parameter(word, f"you can't use '-{key}' and -{word} {key}' at the same time")
        if VM.find(key) is None:
            raise bad_parameter(word, f"unknown option '{key}'")
    return keys


def check_changes(call: Call, config: VmConfig) -> tuple[dict[str, str], list[str], list[str]]:
    """Check a change of a VM's configuration; return what to set, delete and revert.

    Raises:
        ApiError: digest, lock, rights, or a parameter that does not fit.
    """
    digest = call.text("digest")
    if digest and digest != config.digest():
        raise failed("checksum mismatch (file change by other user?)")
    if call.flag("skiplock") and not call.auth.is_root:
        raise bad_parameter("skiplock", "Only root may use this option.")
    if not call.flag("skiplock"):
        check_lock(config)
    values = vm_values(call)
    if not values and not call.text("delete") and not call.text("revert"):
        raise failed("no options specified")
    delete, revert = _named(call, "delete", values), _named(call, "revert", values)
    merged = config.merged()
    for key in [*delete, *revert]:
        check_key_rights(call, key, None, merged.get(key))
    check_hostpci(values)
    for key, value in values.items():
        check_key_rights(call, key, value, merged.get(key))
        if is_disk(key):
            check_drive(call, key, value, merged.get(key))
    if "sshkeys" in values:
        check_ssh_keys(values["sshkeys"])
    return values, delete, revert


def change(call: Call, log: TaskLog) -> None:
    """Change a VM's configuration; of a running one most keys only become pending."""
    lab = call.lab
    with lab.configs.locked(call.vmid):
        config = lab.configs.load(call.vmid)
        values, delete, revert = check_changes(call, config)
        for key in revert:
            config.pending.pop(key, None)
            config.deleted.discard(key)
        for key in delete:
            config.pending.pop(key, None)
            if key in config.values:
                config.deleted.add(key)
            else:
                log.line(f"cannot delete '{key}' - not set in current configuration!")
        _set(lab, config, values, log)
        check_boot(config.merged() if "boot" in values else {})
        if running(lab, call.vmid):
            for key in AT_ONCE:
                if key in config.deleted:
                    config.deleted.discard(key)
                    config.values.pop(key, None)
                if key in config.pending:
                    config.values[key] = config.pending.pop(key)
        else:
            apply_pending(lab, config, force=call.flag("force"))
        config.forget_equal()
        lab.configs.save(config)


def _set(lab: Lab, config: VmConfig, values: dict[str, str], log: TaskLog) -> None:
    allocation = Allocation(lab, config.vmid, log)
    try:
        for key in sorted(values):
            value = values[key]
            if is_disk(key):
                value = allocation.drive(key, value)
            config.deleted.discard(key)
            config.pending[key] = normalise(key, value)
    except (TaskError, GuestError, ApiError) as error:
        allocation.undo()
        raise failed(str(error)) from error


def apply_pending(lab: Lab, config: VmConfig, *, force: bool = False) -> None:
    """Let what waits come into force; a disk that leaves its key becomes `unusedN`, or goes with `force`."""
    before = dict(config.values)
    config.apply_pending()
    kept = {owned_volume(config.vmid, key, value) for key, value in config.values.items() if _has_volume(key)}
    for key, value in before.items():
        if not _has_volume(key) or config.values.get(key) == value:
            continue
        volume = owned_volume(config.vmid, key, value)
        if volume is None or volume in kept:
            continue
        if force or key.startswith("unused"):
            _refuse_kept(config, volume)
        if force or key.startswith("unused") or is_cloud_drive(drive_parts(key, value)["file"]):
            remove_volume(lab, volume)
        else:
            number = next(index for index in range(256) if f"unused{index}" not in config.values)
            config.values[f"unused{number}"] = volume


def _refuse_kept(config: VmConfig, volume: str) -> None:
    """Refuse to free a disk that a snapshot needs (facts: qemu-server, `try_deallocate_drive`)."""
    for values in config.snapshots.values():
        if any(drive_parts(key, value)["file"] == volume for key, value in values.items() if is_disk(key)):
            raise failed(f"unable to delete '{volume}' - volume is still in use (snapshot?)")


def _has_volume(key: str) -> bool:
    return is_disk(key) or base_name(key) == "unused"
