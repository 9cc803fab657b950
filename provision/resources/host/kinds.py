"""The registry of questions that a host answers."""

from __future__ import annotations

from collections.abc import Mapping

from provision.resources.contracts import QueryKind
from provision.resources.host.filesystem import ROOT_CHAIN_KIND
from provision.resources.host.package import PackageStateKind
from provision.resources.host.pci import IOMMU_STATE_KIND, PCI_FUNCTIONS_KIND, ModuleCandidatesKind
from provision.resources.host.query_file import FileStateKind, FileTextKind, LinkTargetKind
from provision.resources.host.query_kernel import BOOT_LOADER_KIND, ModuleStateKind
from provision.resources.host.query_system import BRIDGES_KIND, CLOCK_STATE_KIND, HOST_KEYS_KIND
from provision.resources.host.service import UnitStateKind
from provision.resources.host.shell import ShellKind
from provision.resources.host.sysctl import SysctlValueKind

_KINDS: tuple[QueryKind, ...] = (
    FileStateKind(),
    FileTextKind(),
    LinkTargetKind(),
    PackageStateKind(),
    UnitStateKind(),
    SysctlValueKind(),
    ModuleStateKind(),
    BOOT_LOADER_KIND,
    ROOT_CHAIN_KIND,
    CLOCK_STATE_KIND,
    HOST_KEYS_KIND,
    BRIDGES_KIND,
    PCI_FUNCTIONS_KIND,
    ModuleCandidatesKind(),
    IOMMU_STATE_KIND,
    ShellKind(),
)

HOST_KINDS: Mapping[str, QueryKind] = {kind.query.kind: kind for kind in _KINDS}
"""How each kind of question is asked and its answer read, by `Query.kind`."""
