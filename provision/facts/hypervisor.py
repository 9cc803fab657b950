"""What roles and rules know of a hypervisor beyond a host: cards, groups, IOMMU, storages, bridges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from provision.resources.contracts import CannotTell, Snapshot
from provision.resources.host.pci import (
    IommuState,
    IommuStatus,
    ModuleCandidates,
    PciFunction,
    PciFunctions,
)
from provision.resources.host.query_file import FileText
from provision.resources.host.query_system import Bridge, Bridges

STORAGE_CFG = FileText("/etc/pve/storage.cfg")


def hypervisor_questions(slots: Iterable[str]) -> tuple[Any, ...]:
    """Return the questions behind HypervisorFacts.

    Args:
        slots: PCI addresses of the declared cards.
    """
    cards = tuple(ModuleCandidates(each) for each in dict.fromkeys(slots))
    pci = (PciFunctions(), IommuState()) if cards else ()
    return (*pci, *cards, STORAGE_CFG, Bridges())


@dataclass(frozen=True, slots=True)
class HypervisorFacts:
    """What a hypervisor has.

    Args:
        functions: all PCI functions; None when they could not be read.
        candidates: for each declared card (class code, module) of every kernel, or why it cannot be told.
        iommu: state of the IOMMU; None when it could not be read.
        storage_cfg: content of /etc/pve/storage.cfg, empty when there is none.
        bridges: network bridges.
    """

    functions: tuple[PciFunction, ...] | None = None
    candidates: Mapping[str, frozenset[tuple[str, str]] | CannotTell] = field(default_factory=dict)
    iommu: IommuStatus | None = None
    storage_cfg: str = ""
    bridges: tuple[Bridge, ...] = ()

    def card(self, slot: str) -> tuple[PciFunction, ...]:
        """Return the functions of a card."""
        return tuple(each for each in self.functions or () if slot in (each.address, each.slot))

    def bridge(self, name: str) -> Bridge | None:
        """Return a bridge by its name."""
        return next((each for each in self.bridges if each.name == name), None)


def hypervisor_facts(seen: Snapshot) -> HypervisorFacts:
    """Return the facts of a hypervisor; questions that were not asked count as not answered."""
    functions, iommu = seen.answers.get(PciFunctions()), seen.answers.get(IommuState())
    storage, bridges = seen.answers.get(STORAGE_CFG), seen.answers.get(Bridges())
    candidates = {
        query.slot: answer
        for query, answer in seen.answers.items()
        if isinstance(query, ModuleCandidates) and isinstance(answer, frozenset | CannotTell)
    }
    return HypervisorFacts(
        functions if isinstance(functions, tuple) else None,
        candidates,
        iommu if isinstance(iommu, IommuStatus) else None,
        storage.decode("utf-8", "replace") if isinstance(storage, bytes) else "",
        bridges if isinstance(bridges, tuple) else (),
    )
