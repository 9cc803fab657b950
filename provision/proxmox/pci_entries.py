"""Resolves every spelling of a passed-through card to the PCI functions that a start takes from the host.

A raw entry names one or more addresses (`0000:02:00`, `02:00.0;02:00.1`, `host=...`), all of which are taken;
an address without a function stands for every function of its slot. A mapping is a pool: a start takes the
first free one of its entries for the node, each of which names one or more addresses (qemu-server,
`PVE/QemuServer/PCI.pm`, parse_hostpci and choose_hostpci_devices).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from provision.proxmox import formats
from provision.proxmox.queries import PciMap

_ADDRESS = re.compile(r"(?:([0-9a-f]{4,}):)?([0-9a-f]{2}:[0-9a-f]{2})(?:\.([0-9a-f]))?")
_FUNCTIONS = range(8)
"""A slot has at most eight functions: what a slot means while the host's functions are unknown."""
_RESERVATION = re.compile(r"(\S+)\s+([0-9]+)\s+(?:pid|time):[0-9]+")

Functions = frozenset[str]
"""Full addresses of PCI functions, `0000:02:00.0`."""


def full_address(text: str) -> str:
    """Return an address as the kernel writes it: lower-case, with its domain; empty for garbage."""
    match = _ADDRESS.fullmatch(text.strip().lower())
    if match is None:
        return ""
    domain, slot, function = match.groups()
    return f"{domain or '0000'}:{slot}" + (f".{function}" if function else "")


@dataclass(frozen=True, slots=True)
class PciEntries:
    """What `hostpciN` values mean on one node of Proxmox VE.

    Args:
        node: node name in Proxmox VE.
        functions: addresses of all PCI functions of the host; empty while they are unknown.
        mappings: all PCI mappings; empty while they are unknown.
        has_mappings: they are known.
    """

    node: str
    functions: Functions = frozenset()
    mappings: tuple[PciMap, ...] = ()
    has_mappings: bool = False

    def path(self, text: str) -> Functions:
        """Return the functions behind a list of addresses joined by semicolons."""
        return frozenset(
            function
            for address in map(full_address, text.split(";"))
            if address
            for function in self._of_address(address)
        )

    def _of_address(self, address: str) -> Iterable[str]:
        if "." in address:
            return (address,)
        present = [function for function in self.functions if function.rpartition(".")[0] == address]
        return present or [f"{address}.{number}" for number in _FUNCTIONS]

    def choices(self, value: str) -> tuple[Functions, ...]:
        """Return the sets of functions of which a start takes one; none for a mapping that is not there."""
        return self.choices_of(formats.normal(value, formats.HOSTPCI))

    def choices_of(self, parts: Mapping[str, str]) -> tuple[Functions, ...]:
        """Return the same for a parsed value."""
        if parts.get("mapping"):
            mapping = next((each for each in self.mappings if each.name == parts["mapping"]), None)
            rows = [formats.parse(entry) for entry in mapping.entries] if mapping is not None else []
            paths = [row.get("path", "") for row in rows if row.get("node") == self.node]
        else:
            paths = [parts.get("host", "")]
        return tuple(functions for functions in map(self.path, paths) if functions)

    def may_take(self, value: str) -> Functions:
        """Return every function that a start may take."""
        return frozenset().union(*self.choices(value))

    def is_exactly(self, parts: Mapping[str, str], functions: Functions) -> bool:
        """Whether a parsed value passes just these functions as a whole, as PCI Express."""
        if parts.get("pcie") != "1" or parts.get("mdev"):
            return False
        return self.choices_of(parts) == (functions,)


def reservations(text: str) -> dict[str, int]:
    """Read which VM holds which function from /run/qemu-server/pci-id-reservations.

    Each line is an address, a VMID, and the process or the time until which that counts. A line may outlive
    its VM: only those of running VMs count.
    """
    rows = map(_RESERVATION.fullmatch, text.splitlines())
    return {address: int(row[2]) for row in rows if row is not None and (address := full_address(row[1]))}


def held_now(
    entries: PciEntries, values: Sequence[str], vmid: int, reserved: Mapping[str, int] | None
) -> Functions:
    """Return what a running VM holds, or may hold, of the host's functions.

    Args:
        entries: the node's cards and mappings.
        values: its active `hostpciN` values.
        vmid: its number.
        reserved: VM by function, as Proxmox VE notes it at each start; None if that is unknown.
    """
    held: set[str] = set()
    for value in values:
        choices = entries.choices(value)
        functions = frozenset[str]().union(*choices)
        if len(choices) > 1 and reserved is not None and vmid in reserved.values():
            # Of a pool it has what it reserved; a part of a card (mdev) is reserved by nobody.
            is_part = bool(formats.parse(value).get("mdev"))
            functions = functions if is_part else frozenset(f for f in functions if reserved.get(f) == vmid)
        held |= functions
    return frozenset(held)
