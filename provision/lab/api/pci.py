"""Passed-through cards: mappings, who holds what, and the binding of whole IOMMU groups."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from provision.lab.api.core import Lab
from provision.lab.api.errors import TaskError
from provision.lab.api.schema import parse_parts
from provision.lab.api.store import read_json
from provision.lab.api.tasks import TaskLog
from provision.lab.api.vmschema import HOSTPCI, base_name
from provision.lab.contracts import PciDevice

_BRIDGE = "06"
_DISPLAY = "03"
_NOT_Q35 = "q35 machine model is not enabled at /usr/share/perl5/PVE/QemuServer/PCI.pm line 510."

Devices = Mapping[str, PciDevice]


@dataclass(frozen=True, slots=True)
class Card:
    """One `hostpciN` with the functions it stands for."""

    key: str
    functions: tuple[PciDevice, ...]
    keep_driver: bool = False

    @property
    def is_display(self) -> bool:
        """Whether one of its functions is a display controller."""
        return any(function.cls.startswith(_DISPLAY) for function in self.functions)


def functions_of(devices: Devices, path: str) -> tuple[PciDevice, ...]:
    """Return the functions at an address; an address without a function means all of them."""
    functions: list[PciDevice] = []
    for part in path.split(";"):
        full = part if re.match(r"[0-9a-fA-F]{4,}:", part) else f"0000:{part}"
        functions += [
            device
            for address, device in sorted(devices.items())
            if address == full.lower() or ("." not in full and address.startswith(full.lower() + "."))
        ]
    return tuple(functions)


def properties(device: PciDevice) -> dict[str, str]:
    """Return what a mapping of a function has to say."""
    result = {"id": f"{device.vendor}:{device.device}"}
    if device.iommu_group >= 0:
        result["iommugroup"] = str(device.iommu_group)
    if device.subsystem_vendor not in {"", "0000", "ffff"}:
        result["subsystem-id"] = f"{device.subsystem_vendor}:{device.subsystem_device}"
    return result


def mapping_problem(entry: Mapping[str, str], devices: Devices, name: str) -> str | None:
    """Say where a mapping's entry differs from the hardware, or None."""
    for index, path in enumerate(entry["path"].split(";")):
        functions = functions_of(devices, path)
        if not functions:
            return f"pci device '{path}' not found"
        expected = properties(functions[0])
        # Each device of a list must have the ids; its group is compared for the first one only.
        for key in ("id", "subsystem-id") if index else ("id", "iommugroup", "subsystem-id"):
            if key in expected and key not in entry:
                return f"missing expected property '{key}' for device '{path}'"
            if key in entry and key not in expected:
                return f"unexpected property '{key}' configured for device '{path}'"
            if key in entry and entry[key].lower() != expected[key].lower():
                return f"'{key}' does not match for '{name}' ({expected[key]} != {entry[key]})"
    return None


def held(lab: Lab, asking: int) -> dict[str, int]:
    """Return which function which other VM holds; only guests that run, or are being started, hold any."""
    result = {address: vmid for address, vmid in lab.reserved.items() if vmid != asking}
    for vmid in lab.configs.ids():
        if vmid != asking and lab.guests.pid(vmid) is not None:
            for address in read_json(lab.run_file(vmid), {}).get("pci", []):
                result[address] = vmid
    return result


def _candidates(lab: Lab, parts: Mapping[str, str], devices: Devices) -> list[tuple[PciDevice, ...]]:
    if "mapping" not in parts:
        functions = functions_of(devices, parts["host"])
        if not functions:
            raise TaskError(f"no PCI device found for '{parts['host']}'")
        return [functions]
    mapping = lab.mappings().get(parts["mapping"])
    entries = [
        entry
        for entry in (parse_entry(text) for text in (mapping or {}).get("map", []))
        if entry["node"] == lab.node
    ]
    if not entries:
        raise TaskError(f"PCI device mapping not found for '{parts['mapping']}'")
    for entry in entries:
        mismatch = mapping_problem(entry, devices, parts["mapping"])
        if mismatch is not None:
            raise TaskError(f"PCI device mapping invalid (hardware probably changed): {mismatch}")
    return [functions_of(devices, entry["path"]) for entry in entries]


def parse_entry(text: str) -> dict[str, str]:
    """Read one `map` entry of a mapping."""
    return dict(part.partition("=")[::2] for part in text.split(","))


def _choose(
    key: str, candidates: list[tuple[PciDevice, ...]], taken: Mapping[str, int], own: set[str]
) -> tuple[PciDevice, ...]:
    for functions in candidates:
        if not any(function.address in taken or function.address in own for function in functions):
            return functions
    if len(candidates) > 1:
        raise TaskError(f"could not find a free device for '{key}'")
    for function in candidates[0]:
        if function.address in taken:
            raise TaskError(
                f"PCI device '{function.address}' already in use by VMID '{taken[function.address]}'"
            )
    raise TaskError(f"device '{candidates[0][0].address}' assigned more than once")


@contextmanager
def reserve_cards(lab: Lab, vmid: int, values: Mapping[str, str], log: TaskLog) -> Iterator[tuple[Card, ...]]:
    """Find a VM's cards and keep others from taking them until the block ends.

    Raises:
        TaskError: missing, changed or held hardware.
    """
    keys = sorted((key for key in values if base_name(key) == "hostpci"), key=lambda key: int(key[7:]))
    if not keys:
        yield ()
        return
    devices: Devices = {pci_device.address: pci_device for pci_device in lab.hypervisor.pci_devices()}
    cards: list[Card] = []
    with lab.card_lock:
        taken = held(lab, vmid)
        own: set[str] = set()
        for key in keys:
            parts = parse_parts(HOSTPCI, values[key])
            if parts.get("pcie") == "1" and "q35" not in values.get("machine", ""):
                raise TaskError(_NOT_Q35)
            try:
                candidates = _candidates(lab, parts, devices)
            except TaskError as error:
                log.line(str(error))
                raise
            functions = _choose(key, candidates, taken, own)
            own |= {function.address for function in functions}
            cards.append(Card(key, functions, keep_driver=parts.get("driver") == "keep"))
        lab.reserved |= dict.fromkeys(own, vmid)
    try:
        yield tuple(cards)
    finally:
        with lab.card_lock:
            for address in own:
                lab.reserved.pop(address, None)


def bind_groups(lab: Lab, cards: tuple[Card, ...]) -> None:
    """Bind every device of the cards' IOMMU groups, bridges excepted, to vfio-pci."""
    devices = lab.hypervisor.pci_devices()
    for card in cards:
        groups = {function.iommu_group for function in card.functions}
        if any(group < 0 for group in groups):
            raise TaskError("cannot prepare PCI pass-through, IOMMU not present")
        if not card.keep_driver:
            members = [
                device.address
                for device in devices
                if device.iommu_group in groups and not device.cls.startswith(_BRIDGE)
            ]
            lab.hypervisor.bind_vfio(tuple(sorted(members)))
