"""PCI mappings: how a token may pass cards to VMs.

PVE checks a mapping against the hardware at every start of its VM: ids, subsystem and IOMMU group must all be
there (pve-guest-common, `PVE/Mapping/PCI.pm`), so a card that moved is refused instead of taking another one.
"""

from __future__ import annotations

from collections.abc import Mapping
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


@dataclass(frozen=True, slots=True)
class PciMapping(KeyedResource):
    """One card of one node under a name; entries of other nodes stay.

    Args:
        node: node name in Proxmox VE.
        name: id of the mapping.
        entry: desired parts (`path`, `id`, `subsystem-id`, `iommugroup`) by name.
        absent: our entry, and with it an empty mapping, must not be there.
        inventory: name of the inventory that owns it.
    """

    kind: ClassVar[str] = "pci-mapping"
    path: ClassVar[str] = "/cluster/mapping/pci"
    query: ClassVar[Mappings | UsbMappings] = Mappings()

    node: str
    name: str
    entry: tuple[tuple[str, str], ...] = ()
    absent: bool = False
    inventory: str = ""

    def _key_name(self) -> str:
        return self.name

    @property
    def desired(self) -> Mapping[str, str]:
        """The parts of our entry."""
        return {"node": self.node, **dict(self.entry)}

    def queries(self) -> tuple[Mappings | UsbMappings, ...]:
        """Ask for all mappings."""
        return (self.query,)

    def _map(self, snapshot: Snapshot) -> PciMap | None:
        return next((entry for entry in snapshot[self.query] if entry.name == self.name), None)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Compare the parts of our node's entry."""
        mapping = self._map(snapshot)
        entries = [_parts(entry) for entry in mapping.entries] if mapping is not None else []
        own = [parts for parts in entries if parts.get("node") == self.node]
        if self.absent:
            return (Change(Op.DELETE, "mapping", self.name, None),) if own else ()
        if not own:
            return tuple(Change(Op.CREATE, key, None, value) for key, value in self.desired.items())
        if len(own) > 1:
            return (Change(Op.UPDATE, "map", f"{len(own)} cards", "one card"),)
        return tuple(
            Change(Op.UPDATE, key, own[0].get(key), value)
            for key, value in self.desired.items()
            if own[0].get(key) != value
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
            entries.append(formats.join(self.desired))
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
