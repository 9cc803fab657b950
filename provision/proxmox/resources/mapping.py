"""PCI mappings: how a token may pass cards to VMs.

PVE checks a mapping against the hardware at every start of its VM: ids, subsystem and IOMMU group must all be
there (pve-guest-common, `PVE/Mapping/PCI.pm`), so a card that moved is refused instead of taking another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from provision.contracts.change import Change, Key, Op
from provision.contracts.query import Unknown
from provision.contracts.remedy import ApiCall, Impossible, Request
from provision.contracts.snapshot import Snapshot
from provision.proxmox import formats
from provision.proxmox.queries import Mappings, PciMap
from provision.values.diagnostics import Diagnostic, Source


def description(inventory: str) -> str:
    """Return what a mapping's description says about whose it is."""
    return f"made by provision: inventory={inventory}" if inventory else "made by provision"


def _seen(seen: Snapshot, name: str) -> PciMap | Unknown | None:
    answer = seen[Mappings()]
    if isinstance(answer, Unknown):
        return answer
    return next((item for item in answer if isinstance(item, PciMap) and item.name == name), None)


def _meaning(entry: str) -> dict[str, str]:
    return dict(formats.normal(entry, formats.MAPPING_ENTRY))


@dataclass(frozen=True, slots=True)
class PciMapping:
    """One card of one node under a name; entries of other nodes stay.

    Args:
        system: `pve/api`.
        node: node name in Proxmox VE.
        name: id of the mapping.
        entry: wanted parts (`path`, `id`, `subsystem-id`, `iommugroup`) by name.
        absent: our entry, and with it an empty mapping, must not be there.
        inventory: name of the inventory that makes it.
        source: inventory line.
    """

    system: str
    node: str
    name: str
    entry: tuple[tuple[str, str], ...] = ()
    absent: bool = False
    inventory: str = ""
    source: Source | None = None

    @property
    def key(self) -> Key:
        """Identity: the id."""
        return Key(self.system, "pci-mapping", self.name)

    @property
    def wanted(self) -> Mapping[str, str]:
        """The parts of our entry."""
        return {"node": self.node, **dict(self.entry)}

    def queries(self) -> tuple[Mappings, ...]:
        """Ask for all mappings."""
        return (Mappings(),)

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Compare the parts of our node's entry."""
        there = _seen(seen, self.name)
        if isinstance(there, Unknown):
            return (Change(Op.ATTENTION, "mapping", f"unknown: {there.reason}", self.name),)
        own = self._own(there)
        if self.absent:
            return (Change(Op.DELETE, "mapping", self.name, None),) if own else ()
        if not own:
            return tuple(Change(Op.CREATE, key, None, value) for key, value in self.wanted.items())
        if len(own) > 1:
            return (Change(Op.UPDATE, "map", f"{len(own)} cards", "one card"),)
        return tuple(
            Change(Op.UPDATE, key, own[0].get(key), value)
            for key, value in self.wanted.items()
            if own[0].get(key) != value
        )

    def fix(self, seen: Snapshot) -> ApiCall | Impossible:
        """Create, change or remove it."""
        there = _seen(seen, self.name)
        if isinstance(there, Unknown):
            summary = f"mappings cannot be read: {there.reason}"
            return Impossible(Diagnostic("UNKNOWN", summary, self.node, source=self.source))
        path = f"/cluster/mapping/pci/{self.name}"
        others = [
            entry for entry in (there.entries if there else ()) if _meaning(entry).get("node") != self.node
        ]
        if self.absent:
            if others:
                return ApiCall((self._put(path, others, there),))
            return ApiCall((Request("DELETE", path),))
        entries = [*others, formats.join(self.wanted)]
        if there is None:
            data = {"id": self.name, "description": description(self.inventory), "map": entries}
            return ApiCall((Request("POST", "/cluster/mapping/pci", data),))
        return ApiCall((self._put(path, entries, there),))

    def _own(self, there: PciMap | None) -> list[dict[str, str]]:
        entries = [_meaning(entry) for entry in there.entries] if there is not None else []
        return [entry for entry in entries if entry.get("node") == self.node]

    @staticmethod
    def _put(path: str, entries: list[str], there: PciMap | None) -> Request:
        data: dict[str, object] = {"map": entries}
        if there is not None and there.digest:
            data["digest"] = there.digest
        return Request("PUT", path, data)
