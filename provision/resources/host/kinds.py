"""The registry of questions that a host answers."""

from __future__ import annotations

from collections.abc import Mapping

from provision.resources.contracts import QueryKind
from provision.resources.host.filesystem import RootChainKind
from provision.resources.host.package import PackageStateKind
from provision.resources.host.pci import IommuStateKind, ModuleCandidatesKind, PciFunctionsKind
from provision.resources.host.query_file import FileStateKind, FileTextKind, LinkTargetKind
from provision.resources.host.query_kernel import BootLoaderKind, ModuleStateKind
from provision.resources.host.query_system import BridgesKind, ClockStateKind, HostKeysKind
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

HOST_KINDS: Mapping[str, QueryKind] = {kind.query.kind: kind for kind in _KINDS}
"""How each kind of question is asked and its answer read, by `Query.kind`."""
