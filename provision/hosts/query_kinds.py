"""The registry of questions that a host answers."""

from __future__ import annotations

from collections.abc import Mapping

from provision.contracts.query import QueryKind
from provision.hosts.queries.file import FileStateKind, FileTextKind, LinkTargetKind
from provision.hosts.queries.kernel import BootLoaderKind, ModuleStateKind
from provision.hosts.queries.shell import ShellKind
from provision.hosts.queries.system import BridgesKind, ClockStateKind, HostKeysKind
from provision.hosts.resources.filesystem import RootChainKind
from provision.hosts.resources.package import PackageStateKind
from provision.hosts.resources.pci import IommuStateKind, ModuleCandidatesKind, PciFunctionsKind
from provision.hosts.resources.service import UnitStateKind
from provision.hosts.resources.sysctl import SysctlValueKind

_KINDS: tuple[QueryKind, ...] = (
    FileStateKind(),
    FileTextKind(),
    LinkTargetKind(),
    PackageStateKind(),
    UnitStateKind(),
    SysctlValueKind(),
    ModuleStateKind(),
    BootLoaderKind(),
    RootChainKind(),
    ClockStateKind(),
    HostKeysKind(),
    BridgesKind(),
    PciFunctionsKind(),
    ModuleCandidatesKind(),
    IommuStateKind(),
    ShellKind(),
)

HOST_KINDS: Mapping[str, QueryKind] = {each.query.kind: each for each in _KINDS}
"""How each kind of question is asked and its answer read, by `Query.kind`."""
