"""Which `hostpciN` entry passes which card, whatever spelling an entry uses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from provision.proxmox import formats
from provision.proxmox.pci_entries import PciEntries
from provision.proxmox.resources.vm_parts import Passed, Plugged


def is_raw(key: str, value: str) -> bool:
    """Whether an entry passes a device of the node without a mapping: only root@pam may set or remove it.

    Source: qemu-server, `PVE/API2/Qemu.pm`, check_hostpci_perm and check_usb_perm.
    """
    if re.fullmatch(r"hostpci\d+", key):
        return "mapping" not in formats.normal(value, formats.HOSTPCI)
    if re.fullmatch(r"usb\d+", key):
        parts = formats.normal(value, formats.USB)
        return "mapping" not in parts and parts.get("host", "").lower() != "spice"
    return False


def placed_usb(passed: Sequence[Plugged], values: Mapping[str, str], mapping_prefix: str) -> dict[str, str]:
    """Return the `usbN` entries that a VM should have; those of other devices stay.

    Args:
        passed: the devices that it should have.
        values: present values by key, all keys in their order, empty for none.
        mapping_prefix: mappings of ours; such an entry that passes none of the devices goes.
    """
    parsed = {slot: formats.normal(value, formats.USB) for slot, value in values.items() if value}
    desired = {
        slot: values[slot]
        for slot, parts in parsed.items()
        if not (mapping_prefix and parts.get("mapping", "").startswith(mapping_prefix))
        or any(device.is_in(parts) for device in passed)
    }
    for device in passed:
        if not any(device.is_in(parsed[slot]) for slot in desired if slot in parsed):
            desired[next(slot for slot in values if slot not in desired)] = device.text()
    return desired


def placed_cards(
    passed: Sequence[Passed], values: Mapping[str, str], pci: PciEntries, mapping_prefix: str
) -> dict[str, str]:
    """Return the entries that a VM should have; those of other devices stay as they are.

    An entry that passes just the functions of a card, as PCI Express, stays whatever it is called. What
    passes a part of it, or passes it once more, goes: PVE refuses to start a VM that names a function twice
    (`device '0000:02:00.0' assigned more than once`).

    Args:
        passed: the cards that it should have.
        values: present values by key, all keys in their order, empty for none.
        pci: what they mean.
        mapping_prefix: mappings of ours; such an entry that passes none of the cards goes.
    """
    parsed = {slot: formats.normal(value, formats.HOSTPCI) for slot, value in values.items() if value}
    desired = {card.mapping for card in passed}

    def is_left(slot: str) -> bool:
        """Whether an entry names a mapping of ours that the VM shall have no more."""
        mapping = parsed[slot].get("mapping", "")
        return bool(mapping_prefix) and mapping.startswith(mapping_prefix) and mapping not in desired

    entries = {slot: value for slot, value in values.items() if value and not is_left(slot)}
    kept: dict[str, str] = {}
    for card in passed:
        named = [slot for slot, parts in parsed.items() if parts.get("mapping", "") == card.mapping != ""]
        touching = [slot for slot, value in entries.items() if pci.may_take(value) & card.functions]
        own = [slot for slot in named if card.has_options(parsed[slot])]
        whole = [slot for slot in touching if pci.is_exactly(parsed[slot], card.functions)]
        exact = [slot for slot in whole if card.has_options(parsed[slot])]
        candidates = dict.fromkeys((*named, *touching))
        slot = next(iter((*own, *exact)), None)
        if slot is not None:
            kept[slot] = entries[slot]
        else:
            # In the place of what passed it so far, so that its number in the guest stays.
            free = (slot for slot in values if slot not in entries and slot not in kept)
            kept[next(iter((*candidates, *free)))] = card.text()
        for other in candidates:
            entries.pop(other, None)
    return {**entries, **kept}
