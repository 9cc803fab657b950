"""PCI mappings: how a token may pass cards to VMs.

PVE checks a mapping against the hardware at every start of its VM: ids, subsystem and IOMMU group must all be
there (pve-guest-common, `PVE/Mapping/PCI.pm`), so a card that moved is refused instead of taking another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.remedy import ApiCall, Request
from provision.contracts.resource import KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.proxmox import formats
from provision.proxmox.queries import Mappings, PciMap, UsbMappings


def description(inventory: str) -> str:
    """Return the description that names the inventory that owns a mapping."""
    return f"made by provision: inventory={inventory}" if inventory else "made by provision"


def _parts(entry: str) -> dict[str, str]:
    return dict(formats.normal(entry, formats.MAPPING_ENTRY))


def _path(parts: Mapping[str, str]) -> str:
    return parts.get("path", "")


def _paths(entries: Sequence[Mapping[str, str]]) -> str:
    return ", ".join(sorted(map(_path, entries)))


@dataclass(frozen=True, slots=True)
class PciMapping(KeyedResource):
    """A card of one node, or a pool of equal cards, under a name; entries of other nodes stay.

    Args:
        node: node name in Proxmox VE.
        name: id of the mapping.
        entries: desired parts (`path`, `id`, `subsystem-id`, `iommugroup`) by name, of each card. Of several,
            a start takes the first free one.
        absent: our entries, and with them an empty mapping, must not be there.
        inventory: name of the inventory that owns it.
    """

    kind: ClassVar[str] = "pci-mapping"
    path: ClassVar[str] = "/cluster/mapping/pci"
    query: ClassVar[Mappings | UsbMappings] = Mappings()

    node: str
    name: str
    entries: tuple[tuple[tuple[str, str], ...], ...] = ()
    absent: bool = False
    inventory: str = ""

    def _key_name(self) -> str:
        return self.name

    @property
    def desired(self) -> Sequence[Mapping[str, str]]:
        """The parts of our entries."""
        return [{"node": self.node, **dict(entry)} for entry in self.entries]

    def queries(self) -> tuple[Mappings | UsbMappings, ...]:
        """Ask for all mappings."""
        return (self.query,)

    def _map(self, snapshot: Snapshot) -> PciMap | None:
        return next((entry for entry in snapshot[self.query] if entry.name == self.name), None)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Compare the parts of our node's entries, whose order means nothing."""
        mapping = self._map(snapshot)
        entries = [_parts(entry) for entry in mapping.entries] if mapping is not None else []
        own = [parts for parts in entries if parts.get("node") == self.node]
        if self.absent:
            return (Change(Op.DELETE, "mapping", self.name, None),) if own else ()
        desired = self.desired
        if len(desired) == 1 and not own:
            return tuple(Change(Op.CREATE, key, None, value) for key, value in desired[0].items())
        if len(desired) == 1 and len(own) > 1:
            return (Change(Op.UPDATE, "map", f"{len(own)} cards", "one card"),)
        if len(desired) != len(own):
            operation = Op.UPDATE if own else Op.CREATE
            return (Change(operation, "map", _paths(own) if own else None, _paths(desired)),)
        pairs = zip(sorted(own, key=_path), sorted(desired, key=_path), strict=True)
        return tuple(
            Change(Op.UPDATE, key if len(desired) == 1 else f"{key} {number}", present.get(key), value)
            for number, (present, parts) in enumerate(pairs)
            for key, value in parts.items()
            if present.get(key) != value
        )

    def fix(self, snapshot: Snapshot, /) -> ApiCall:
        """Create, change or remove it."""
        mapping = self._map(snapshot)
        path = f"{self.path}/{self.name}"
        entries = (
            [entry for entry in mapping.entries if _parts(entry).get("node") != self.node] if mapping else []
        )
        if self.absent and not entries:
            return ApiCall((Request("DELETE", path),))
        if not self.absent:
            entries += map(formats.join, self.desired)
        if mapping is None:
            data = {"id": self.name, "description": description(self.inventory), "map": entries}
            return ApiCall((Request("POST", self.path, data),))
        digest = {"digest": mapping.digest} if mapping.digest else {}
        return ApiCall((Request("PUT", path, {"map": entries, **digest}),))


@dataclass(frozen=True, slots=True)
class UsbMapping(PciMapping):
    """One USB device of one node under a name; its entry has `id` and, for a port, `path`."""

    kind: ClassVar[str] = "usb-mapping"
    path: ClassVar[str] = "/cluster/mapping/usb"
    query: ClassVar[Mappings | UsbMappings] = UsbMappings()
