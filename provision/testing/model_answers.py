"""What ModelHost answers: the same queries as real fragments, from the state."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import Any

from provision.contracts.query import Unknown
from provision.gpu.fabric import FabricState
from provision.gpu.mps import MpsState
from provision.gpu.queries import GpuState
from provision.hosts.operations.basic import INLINE_LIMIT, sysctl_file
from provision.hosts.queries.boot_line import BootLine
from provision.hosts.queries.boot_swap import BootSwap
from provision.hosts.queries.boot_sysctl import BootSysctl
from provision.hosts.queries.file import ABSENT, FileState, FileStatus, FileText, LinkTarget
from provision.hosts.queries.identity import Identity, MachineIdentity
from provision.hosts.queries.kernel import BootLoader, ModuleState, module_name
from provision.hosts.queries.left_files import FileNames, MarkedFiles
from provision.hosts.queries.modprobe import ModprobeRules
from provision.hosts.queries.notes import NotedState, NotedStates
from provision.hosts.queries.saved import ABSENT as BEFORE_ABSENT
from provision.hosts.queries.saved import FILE, NOTHING, RESTORED, OwnFiles, SavedFile
from provision.hosts.queries.secret import SecretText, secret_of
from provision.hosts.queries.shell import Shell
from provision.hosts.queries.system import Bridges, ClockState, HostKeys, NetworkLinks
from provision.hosts.resources.filesystem import RootChain
from provision.hosts.resources.package import PackageState, PackageStatus
from provision.hosts.resources.pci import IommuState, ModuleCandidates, PciFunctions
from provision.hosts.resources.service import UnitState, UnitStatus
from provision.hosts.resources.sysctl import SysctlValue
from provision.inventory.kernel_line import MODULE_LISTS, parse
from provision.k3s.queries import JoinToken, password_of
from provision.rdma.queries import RdmaState
from provision.testing import model_dhcp, model_k3s
from provision.testing.model_boot import boot_line, boot_settings, boot_swap
from provision.testing.model_gpu import fabric_state, gpu_state
from provision.testing.model_shell import run_command
from provision.testing.model_state import HostState, ModelFile, resolved, virtual_content

_UIDS = {"root": "0", "adm": "4", "nobody": "65534"}


def _id(name: str) -> str:
    return name if name.isdigit() else _UIDS.get(name, "1000")


def _file(state: HostState, query: FileState) -> object:
    path = query.path
    entry = state.files.get(path)
    if entry is None:
        virtual = virtual_content(state, path)
        if virtual is not None:
            entry = ModelFile(virtual, "0444")
        elif state.folder(path):
            entry = ModelFile(mode="0755", type="directory")
        else:
            return ABSENT
    digest, content = "", None
    if entry.type == "file" and query.salt:
        digest = hashlib.sha256(query.salt.encode() + entry.content).hexdigest()
    elif entry.type == "file" and query.want:
        digest = entry.digest or hashlib.sha256(entry.content).hexdigest()
        if digest != query.want and len(entry.content) <= INLINE_LIMIT * 3 // 4:
            content = entry.content
    owner, group, size = entry.owner, entry.group, len(entry.content)
    return FileStatus(entry.type, entry.mode, owner, group, _id(owner), _id(group), size, digest, content)


def _marked_files(state: HostState, query: MarkedFiles) -> object:
    pairs, folders = [], {query.folder}
    if query.storages and query.storages not in state.files:
        return Unknown(f"{query.storages} cannot be read")
    if query.storages:
        lines = state.files[query.storages].content.decode().splitlines()
        keys = [line.strip().partition(" ")[::2] for line in lines]
        name = query.folder.rpartition("/")[2]
        own = [
            value.partition(f"{name}=")[2].split(",")[0].lstrip("/")
            for key, value in keys
            if key == "content-dirs"
        ]
        roots = [value.rstrip("/") for key, value in keys if key == "path"]
        folders |= {f"{root}/{part}" for root in roots for part in (name, *own)}
    for path, file in state.files.items():
        if path.rpartition("/")[0] in folders and file.type == "file":
            lines = file.content.decode("utf-8", "replace").splitlines()
            marked = (line.removeprefix(query.mark) for line in lines if line.startswith(query.mark))
            pairs += [(path, rest.strip()) for rest in marked]
    return tuple(sorted(pairs))


def _saved(state: HostState, query: SavedFile) -> object:
    if query.path not in state.saved:
        return NOTHING
    before = state.saved[query.path]
    if before is None:
        return BEFORE_ABSENT
    return RESTORED if before == RESTORED else FILE


def _own_files(state: HostState, query: OwnFiles) -> object:
    del query
    made = (path for path, before in state.saved.items() if before is None and path in state.files)
    return tuple(sorted(path for path in made if "provision" in path))


def _noted(state: HostState, query: NotedStates) -> object:
    del query
    return tuple(sorted(NotedState(*key, value) for key, value in state.noted.items()))


def _text(state: HostState, query: FileText) -> object:
    virtual = virtual_content(state, query.path)
    if virtual is not None:
        return virtual
    entry = state.files.get(resolved(state, query.path))
    if entry is None:
        return None
    if entry.type != "file":
        return Unknown(f"{query.path} may not be read")
    lines = entry.content.replace(b"\0", b"").splitlines(keepends=True)
    starts = accumulate(map(len, lines), initial=0)
    return b"".join(line for line, start in zip(lines, starts, strict=False) if start < INLINE_LIMIT)


def _link(state: HostState, query: LinkTarget) -> object:
    entry = state.files.get(query.path)
    return entry.target if entry is not None and entry.type == "link" else ""


def _package(state: HostState, query: PackageState) -> object:
    if not state.packages.get(query.name):
        for name, provided in state.provides.items():
            if query.name in provided and state.packages.get(name):
                return PackageStatus(held=name in state.held, provider=name)
    return PackageStatus(state.packages.get(query.name, ""), query.name in state.held)


def _unit(state: HostState, query: UnitState) -> object:
    unit = state.units.get(query.name)
    if unit is None:
        return UnitStatus()
    active, sub = ("active", "running") if unit.active else ("inactive", "dead")
    if unit.waiting:
        active, sub = "activating", "auto-restart"
    load = "masked" if unit.file == "masked" else "loaded"
    return UnitStatus(load, active, sub, unit.file)


def _sysctl(state: HostState, query: SysctlValue) -> object:
    value = state.sysctls.get(sysctl_file(query.key))
    return None if value is None else " ".join(value.split())


def _module(state: HostState, query: ModuleState) -> object:
    if state.clock.container:
        return "foreign"
    if query.name in state.modules:
        return "loaded"
    return "builtin" if query.name in state.builtin else "absent"


def blacklist_of(line: str) -> frozenset[str]:
    """Return the modules that a kernel command line keeps off."""
    modules: set[str] = set()
    for argument in parse(line):
        if argument.name in MODULE_LISTS:
            modules.update(argument.members)
    return frozenset(modules)


def _pci(state: HostState, query: PciFunctions) -> object:
    del query
    functions = [
        replace(function.pci, driver=function.driver, override=function.override)
        for function in state.functions
    ]
    return tuple(sorted(functions, key=lambda function: function.address))


def _candidates(state: HostState, query: ModuleCandidates) -> object:
    functions = [function for function in state.functions if function.pci.slot == query.slot]
    if not functions:
        return Unknown(f"there is no PCI function {query.slot}")
    return frozenset(
        (function.pci.cls, module_name(name)) for function in functions for name in function.modules
    )


def _host_keys(state: HostState, query: HostKeys) -> object:
    del query
    keys = state.below("/etc/ssh/ssh_host_", "_key")
    return tuple((key, " ".join(state.text(f"{key}.pub").split()[:2])) for key in keys)


_IMAGE_KEY = "AAAAold"
"""The host key with which every guest in memory starts: it says nothing of a clone."""


def _identity(state: HostState, query: Identity) -> object:
    del query
    key = " ".join(state.text("/etc/ssh/ssh_host_ed25519_key.pub").split()[:2])
    name = re.search(r"(?m)^node-name: *[\"']?([^\"'\n]+)", state.text("/etc/rancher/k3s/config.yaml"))
    return MachineIdentity(
        machine_id=state.text("/etc/machine-id").strip(),
        product_uuid=state.product_uuid,
        hostname=state.hostname,
        host_key="" if _IMAGE_KEY in key else key,
        macs=tuple(sorted(state.commands.get("link", {}))),
        node_name=name[1].lower() if name is not None else "",
        addresses=tuple(sorted(held.decode() for held in state.commands.get("link", {}).values())),
    )


ANSWERS: dict[type[Any], Callable[[HostState, Any], object]] = {
    FileState: _file,
    FileText: _text,
    SavedFile: _saved,
    OwnFiles: _own_files,
    NotedStates: _noted,
    MarkedFiles: _marked_files,
    FileNames: lambda state, query: tuple(
        sorted(path for path in state.files if path.startswith(f"{query.folder}/{query.prefix}"))
    ),
    LinkTarget: _link,
    SecretText: lambda state, query: secret_of(query.path, _text(state, FileText(query.path))),
    JoinToken: lambda state, query: password_of(secret_of(query.path, _text(state, FileText(query.path)))),
    PackageState: _package,
    UnitState: _unit,
    SysctlValue: _sysctl,
    BootLine: lambda state, _: boot_line(state),
    BootSysctl: lambda state, query: boot_settings(state, sysctl_file(query.key)),
    BootSwap: lambda state, _: boot_swap(state),
    ModuleState: _module,
    BootLoader: lambda state, _: state.loader,
    PciFunctions: _pci,
    ModuleCandidates: _candidates,
    ModprobeRules: lambda state, _: state.modprobe_rules(),
    IommuState: lambda state, _: state.iommu,
    RootChain: lambda state, _: state.root,
    ClockState: lambda state, _: state.clock,
    Bridges: lambda state, _: state.bridges,
    NetworkLinks: lambda state, _: (*state.links, *state.bridges),
    HostKeys: _host_keys,
    Identity: _identity,
    GpuState: gpu_state,
    FabricState: lambda state, _: fabric_state(state),
    MpsState: lambda state, _: state.mps,
    RdmaState: lambda state, _: state.rdma,
    Shell: lambda state, query: run_command(state, query.command),
    **model_k3s.ANSWERS,
    **model_dhcp.ANSWERS,
}
"""How each query is answered from the state."""
