"""Which of a VM's drives is its first disk, whatever bus it is on, and which are the others.

PVE boots by `boot: order=ide2;ide1;net0`; older configurations have letters (`boot: cdn`, c is the disk) and
`bootdisk: ide1` (qemu-server, `PVE/QemuServer/Drive.pm`: get_bootdisks, resolve_first_disk).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from provision.proxmox import formats

_SLOT = re.compile(r"(ide|scsi|virtio|sata)([0-9]+)")
_BUSES = ("ide", "scsi", "virtio", "sata")
"""The order in which PVE looks for a first disk."""
CREATED = "scsi"
"""The bus of disks that we make."""
_SCSI_DISKS = 31


def is_disk(slot: str, value: str) -> bool:
    """Whether a key is a disk of the guest: no CD-ROM, cloud-init drive, firmware or unused disk."""
    if _SLOT.fullmatch(slot) is None or not value:
        return False
    parts = formats.normal(value, formats.DRIVE)
    volume = parts.get("file", "")
    return parts["media"] == "disk" and volume not in {"", "none", "cdrom"} and "cloudinit" not in volume


def disks_of(keys: tuple[str, ...], value: Callable[[str], str]) -> tuple[str, ...]:
    """Return the keys of a VM's disks, the one that it boots from first.

    Args:
        keys: all keys of the configuration.
        value: returns the value of a key, empty for none.
    """
    slots = sorted((slot for slot in keys if is_disk(slot, value(slot))), key=_position)
    first = next((slot for slot in _boot_order(value) if slot in slots), None)
    return tuple(slots) if first is None else (first, *(slot for slot in slots if slot != first))


def _boot_order(value: Callable[[str], str]) -> tuple[str, ...]:
    order = formats.parse(value("boot")).get("order", "")
    return (*(word.strip() for word in order.split(";")), value("bootdisk"))


def _position(slot: str) -> tuple[int, int]:
    match = _SLOT.fullmatch(slot)
    return (_BUSES.index(match[1]), int(match[2])) if match is not None else (len(_BUSES), 0)


def slots_of(
    count: int, keys: tuple[str, ...], value: Callable[[str], str], fixed: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """Return the slots of a node's disks in their order: those that its VM has, then free ones.

    Slots in `fixed` belong to disks that declare them.

    The disks of a VM that boots from scsi0, as ours do, are scsi0, scsi1 and so on; what else it has was
    added by somebody. Any other VM was adopted: its disks count in their order.
    """
    created = [slot for number in range(_SCSI_DISKS) if (slot := f"{CREATED}{number}") not in fixed]
    present = tuple(slot for slot in disks_of(keys, value) if slot not in fixed)
    if not present or present[0] == created[0]:
        return tuple(created[:count])
    free = [slot for slot in created if not value(slot)]
    return (*present[:count], *free[: max(0, count - len(present))])
