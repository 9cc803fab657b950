"""The registry of queries that a host answers."""

from __future__ import annotations

from collections.abc import Mapping

from provision.contracts.query import QueryKind
from provision.hosts.queries.boot_line import BOOT_LINE_KIND
from provision.hosts.queries.boot_swap import BOOT_SWAP_KIND
from provision.hosts.queries.boot_sysctl import BootSysctlKind
from provision.hosts.queries.file import FileStateKind, FileTextKind, LinkTargetKind
from provision.hosts.queries.identity import IDENTITY_KIND
from provision.hosts.queries.kernel import BOOT_LOADER_KIND, ModuleStateKind
from provision.hosts.queries.left_files import FileNamesKind, MarkedFilesKind
from provision.hosts.queries.modprobe import MODPROBE_RULES_KIND
from provision.hosts.queries.notes import NotedStatesKind
from provision.hosts.queries.saved import OwnFilesKind, SavedFileKind
from provision.hosts.queries.secret import SecretTextKind
from provision.hosts.queries.shell import ShellKind
from provision.hosts.queries.system import BRIDGES_KIND, CLOCK_STATE_KIND, HOST_KEYS_KIND, LINKS_KIND
from provision.hosts.resources.filesystem import ROOT_CHAIN_KIND
from provision.hosts.resources.package import PackageStateKind
from provision.hosts.resources.pci import IOMMU_STATE_KIND, PCI_FUNCTIONS_KIND, ModuleCandidatesKind
from provision.hosts.resources.service import UnitStateKind
from provision.hosts.resources.sysctl import SysctlValueKind

_KINDS: tuple[QueryKind, ...] = (
    FileStateKind(),
    FileTextKind(),
    LinkTargetKind(),
    SecretTextKind(),
    SavedFileKind(),
    OwnFilesKind(),
    NotedStatesKind(),
    MarkedFilesKind(),
    FileNamesKind(),
    PackageStateKind(),
    UnitStateKind(),
    SysctlValueKind(),
    BootSysctlKind(),
    BOOT_SWAP_KIND,
    BOOT_LINE_KIND,
    ModuleStateKind(),
    BOOT_LOADER_KIND,
    ROOT_CHAIN_KIND,
    CLOCK_STATE_KIND,
    HOST_KEYS_KIND,
    IDENTITY_KIND,
    BRIDGES_KIND,
    LINKS_KIND,
    MODPROBE_RULES_KIND,
    PCI_FUNCTIONS_KIND,
    ModuleCandidatesKind(),
    IOMMU_STATE_KIND,
    ShellKind(),
)

HOST_KINDS: Mapping[str, QueryKind] = {kind.query.kind: kind for kind in _KINDS}
"""How each kind of query is asked and its answer read, by `Query.kind`."""
