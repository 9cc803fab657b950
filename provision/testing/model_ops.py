"""What ModelHost does: operations, by meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from provision.gpu.fabric import ResetFabric
from provision.gpu.mps import ClearMps
from provision.gpu.resources.driver import SetPowerLimit
from provision.gpu.resources.runtime import AwaitToolkit
from provision.hosts.operations import basic as ops
from provision.hosts.operations import edit as ops_edit
from provision.hosts.operations import grow as ops_grow
from provision.hosts.operations import notes as ops_notes
from provision.hosts.operations import saved as ops_saved
from provision.hosts.operations.apt import FetchLists, InstallVersions, RemoveFolder
from provision.hosts.operations.placement import STATE
from provision.hosts.queries.boot_swap import NO_UNIT
from provision.hosts.queries.file import digest_of
from provision.hosts.queries.kernel import module_name
from provision.hosts.queries.saved import RESTORED
from provision.hosts.resources.hosts_file import SetHostsEntry, with_entry
from provision.hosts.resources.mount import MountPath, SetFstabLine, with_fstab_line
from provision.testing import model_dhcp, model_k3s
from provision.testing.model_apt import transaction
from provision.testing.model_gpu import clear_mps, reset_fabric, set_power_limits
from provision.testing.model_state import HostState, ModelFile, ModelUnit, OperationFailedError, resolved


def _write(state: HostState, op: ops.WriteFile) -> None:
    path = op.path
    present = state.files.get(path)
    if present is not None and present.type == "link":
        raise OperationFailedError(f"refused: {path} is a symbolic link")
    if state.folder(path):
        raise OperationFailedError(f"refused: {path} is a directory")
    _parents(state, path)
    if op.save:
        _save(state, path)
    keep = present or ModelFile()
    state.files[path] = ModelFile(
        op.content, mode_of(op.mode or keep.mode), op.owner or keep.owner, op.group or keep.group
    )
    if path.startswith("/etc/systemd/system/"):
        _unit_file(state, path)


def _save(state: HostState, path: str) -> None:
    """Keep what a path holds at its first change."""
    if path.startswith(STATE) or state.saved.get(path, RESTORED) != RESTORED:
        return
    present = state.files.get(path)
    if present is None or present.type == "file":
        state.saved[path] = None if present is None else replace(present)


def _restore(state: HostState, op: ops_saved.RestoreFile) -> None:
    before = state.saved.get(op.path)
    if before == RESTORED:
        return
    if not isinstance(before, ModelFile):
        raise OperationFailedError(f"refused: {op.path}: nothing is saved")
    state.files[op.path] = replace(before)
    state.saved[op.path] = RESTORED


def _write_blob(state: HostState, op: ops.WriteBlob) -> None:
    _write(state, ops.WriteFile(op.path, op.blob.data, op.mode, "root", "root"))
    state.files[op.path].digest = op.blob.sha256


def _set_line(state: HostState, op: ops.SetLine) -> None:
    present = state.files.get(op.path, ModelFile())
    _write(state, ops.WriteFile(op.path, ops.with_line(present.content, op.line), mode=""))


def _add_host_names(state: HostState, op: ops_edit.AddHostNames) -> None:
    present = state.files.get(op.path, ModelFile())
    content = ops_edit.with_host_names(present.content, op.address, op.names)
    _write(state, ops.WriteFile(op.path, content, mode=""))


def _comment_out_swap(state: HostState, op: ops_edit.CommentOutSwap) -> None:
    if op.path in state.files:
        content = ops_edit.without_swap(state.files[op.path].content)
        _write(state, ops.WriteFile(op.path, content, mode=""))


def _comment_out_line(state: HostState, op: ops_edit.CommentOutLine) -> None:
    if op.path in state.files:
        content = ops_edit.without_line(state.files[op.path].content, op.line)
        _write(state, ops.WriteFile(op.path, content, mode=""))


def _replace_seen(state: HostState, op: ops_edit.ReplaceUnchanged) -> None:
    present = state.files.get(resolved(state, op.path), ModelFile(type="directory"))
    digest = digest_of(present.content) if present.type == "file" else ""
    if digest not in (op.desired, op.expected):
        raise OperationFailedError(op.refusal)
    if digest == op.expected:
        if op.copy:
            state.files[op.copy] = replace(present)
        _write(state, ops.WriteFile(op.path, op.content, mode=""))


def mode_of(mode: str) -> str:
    """Return a mode as FileStatus writes it."""
    return mode.lstrip("0").zfill(3).zfill(4)


def _parents(state: HostState, path: str) -> None:
    """Make the folders above a path, from the top down."""
    parts = path.strip("/").split("/")[:-1]
    for depth in range(1, len(parts) + 1):
        parent = "/" + "/".join(parts[:depth])
        entry = state.files.get(parent)
        if entry is None:
            if not state.folder(parent):
                state.files[parent] = ModelFile(mode="0755", type="directory")
        elif entry.type != "directory":
            raise OperationFailedError(f"{parent} is not a folder")


def _unit_file(state: HostState, path: str) -> None:
    name, *rest = path.removeprefix("/etc/systemd/system/").split("/")
    name = name.removesuffix(".d")
    if rest or "." in name:
        unit = state.units.setdefault(name, ModelUnit(active=False, file="disabled"))
        unit.needs_reload = True


def _remove(state: HostState, op: ops.RemoveFile) -> None:
    if state.folder(op.path):
        raise OperationFailedError(f"{op.path} is a directory")
    if op.save:
        _save(state, op.path)
    if op.path in state.saved and state.saved[op.path] is None:
        del state.saved[op.path]
    if state.files.pop(op.path, None) is not None:
        _keep_parent(state, op.path)


def _keep_parent(state: HostState, path: str) -> None:
    parent = path.rpartition("/")[0]
    if parent and not state.folder(parent):
        state.files[parent] = ModelFile(mode="0755", type="directory")


def _make_directory(state: HostState, op: ops.MakeDirectory) -> None:
    if op.path in state.files and state.files[op.path].type != "directory":
        raise OperationFailedError(f"{op.path} exists")
    _parents(state, f"{op.path}/x")


def _entry(state: HostState, path: str) -> ModelFile:
    entry = state.files.get(path)
    if entry is None:
        if not state.folder(path):
            raise OperationFailedError(f"{path}: no such file")
        entry = state.files[path] = ModelFile(mode="0755", type="directory")
    return entry


def _set_mode(state: HostState, op: ops.SetMode) -> None:
    _entry(state, op.path).mode = mode_of(op.mode)


def _set_owner(state: HostState, op: ops.SetOwner) -> None:
    entry = _entry(state, op.path)
    entry.owner, entry.group = op.owner or entry.owner, op.group or entry.group


def _link(state: HostState, op: ops.LinkTo) -> None:
    if op.target != NO_UNIT and op.target not in state.files:
        raise OperationFailedError(f"{op.target} does not exist")
    state.files[op.path] = ModelFile(mode="0777", type="link", target=op.target)


def _install(state: HostState, op: ops.InstallPackages) -> None:
    for name in op.names:
        if name in state.missing:
            raise OperationFailedError(f"E: Unable to locate package {name}")
        if any(state.packages.get(other) for other in state.conflicts.get(name, ())):
            raise OperationFailedError("E: Packages need to be removed but remove is disabled.")
    providers = {name: real for real, names in state.provides.items() for name in names}
    for name in (providers.get(name, name) for name in op.names):
        state.packages[name] = state.packages.get(name) or state.available.get(name, "1.0")
        for path in state.package_files.get(name, ()):
            state.files.setdefault(path, ModelFile(b"program", mode="0755"))
        for unit in state.brings.get(name, ()):
            state.units.setdefault(unit, ModelUnit())
            start_unit(state, unit)


def _install_versions(state: HostState, op: InstallVersions) -> None:
    moves = transaction(state, op.requests)
    if isinstance(moves, str):
        raise OperationFailedError(moves)
    others = [move.name for move in moves if not move.new and move.name not in op.removable]
    if others:
        raise OperationFailedError(op.refusal + ", ".join(others))
    for move in moves:
        if move.new:
            state.packages[move.name] = move.new
            for unit in state.brings.get(move.name, ()):
                state.units.setdefault(unit, ModelUnit(active=False))
        else:
            del state.packages[move.name]
            state.held.discard(move.name)


def _fetch_lists(state: HostState, op: FetchLists) -> None:
    if op.config not in state.files:
        raise OperationFailedError(f"{op.config} is missing")


def _remove_folder(state: HostState, op: RemoveFolder) -> None:
    for path in [path for path in state.files if path == op.path or path.startswith(f"{op.path}/")]:
        del state.files[path]


def _set_fstab_line(state: HostState, op: SetFstabLine) -> None:
    content = state.files["/etc/fstab"].content if "/etc/fstab" in state.files else b""
    _write(state, ops.WriteFile("/etc/fstab", with_fstab_line(content, op.path, op.line), mode=""))


def _set_hosts_entry(state: HostState, op: SetHostsEntry) -> None:
    content = state.files[op.path].content if op.path in state.files else b""
    _write(state, ops.WriteFile(op.path, with_entry(content, op.name, op.address), mode=""))


def _mount(state: HostState, op: MountPath) -> None:
    rows = [line.split() for line in state.text("/etc/fstab").split("\n") if not line.startswith("#")]
    row = next((row for row in rows if row[1:2] == [op.path]), None)
    if row is None:
        raise OperationFailedError(f"mount: {op.path}: can't find in /etc/fstab.")
    state.mounts[op.path] = row[0]


def _set_power_limit(state: HostState, op: SetPowerLimit) -> None:
    if not state.loaded_driver:
        raise OperationFailedError("NVIDIA-SMI has failed because it couldn't communicate with the driver")
    set_power_limits(state, op.watts)


def _await_toolkit(state: HostState, op: AwaitToolkit) -> None:
    if not model_k3s.installed_runtime(state):
        raise OperationFailedError(f"the toolkit is not there within {op.seconds} s")


def _uninstall(state: HostState, op: ops.RemovePackages) -> None:
    more, names = set(), list(op.names)
    for name in names:
        dependents = {other for other in state.dependents.get(name, ()) if other in state.packages}
        names += dependents - set(names)
        more |= dependents - set(op.names)
    if more:
        raise OperationFailedError(", ".join(sorted(more)).join(op.refusal))
    for name in op.names:
        state.packages.pop(name, None)
        state.held.discard(name)
        for unit in state.brings.get(name, ()):
            state.units.pop(unit, None)


def _hold(state: HostState, op: ops.HoldPackages) -> None:
    if op.hold:
        state.held.update(name for name in op.names if name in state.packages)
    else:
        state.held.difference_update(op.names)


def start_unit(state: HostState, name: str) -> None:
    """Start a unit: it reads its files as they are now."""
    unit = state.units[name]
    unit.active, unit.waiting = True, False
    unit.read = state.config_digest(unit)
    model_k3s.started(state, name)


def _set_unit(state: HostState, op: ops.SetUnit) -> None:
    unit = state.units.get(op.name)
    if unit is None:
        raise OperationFailedError(f"Unit {op.name} not found.")
    if op.verb == "start":
        if unit.file == "masked":
            raise OperationFailedError(f"Unit {op.name} is masked.")
        if not unit.active:
            start_unit(state, op.name)
    elif op.verb == "stop":
        unit.active = unit.waiting = False
    elif op.verb == "mask":
        unit.file = "masked"
    elif op.verb == "unmask":
        unit.file = "disabled" if unit.file == "masked" else unit.file
    elif unit.file in ("enabled", "disabled"):
        unit.file = f"{op.verb}d"


def _set_sysctl(state: HostState, op: ops.SetSysctl) -> None:
    if op.file not in state.sysctls:
        raise OperationFailedError(f"{op.file}: no such file")
    state.sysctls[op.file] = op.value


def _note(state: HostState, op: ops_notes.Note) -> None:
    state.noted.setdefault((op.of, op.name), op.value)


def _bring_back(state: HostState, op: ops_notes.BringBack) -> None:
    if op.of == ops_notes.SYSCTL and ops.sysctl_file(op.name) in state.sysctls:
        _set_sysctl(state, ops.SetSysctl(op.name, op.value))
    elif op.of == ops_notes.HOLD:
        _hold(state, ops.HoldPackages((op.name,), hold=op.value == ops_notes.HELD))
    elif op.of == ops_notes.SERVICE and op.name in state.units:
        if op.value != ops_notes.MISSING:
            for verb in ops_notes.unit_verbs(op.value):
                _set_unit(state, ops.SetUnit(op.name, verb))
        elif f"/etc/systemd/system/{op.name}" in state.files:
            _set_unit(state, ops.SetUnit(op.name, "stop"))
            _set_unit(state, ops.SetUnit(op.name, "disable"))
    state.noted.pop((op.of, op.name), None)


def load_module(state: HostState, op: ops.LoadModule) -> None:
    """Load a module, unless it is a part of the kernel."""
    name = module_name(op.name)
    if name not in state.builtin:
        state.modules.add(name)


def _hostname(state: HostState, op: ops.SetHostname) -> None:
    state.hostname = op.name


def _swap_off(state: HostState, op: ops.SwapOff) -> None:
    del op
    state.swaps = ()


def _grow_partition(state: HostState, op: ops_grow.GrowPartition) -> None:
    root = state.root
    if (op.disk, op.number, op.extended) != (root.disk, root.partition, root.extended):
        raise OperationFailedError(f"{op.disk}{op.number} is not the root's partition")
    gained = root.behind_partition
    if root.volume:
        state.root = replace(root, behind_partition=0, in_partition=root.in_partition + gained)
    else:
        state.root = replace(root, behind_partition=0, in_device=root.in_device + gained)


def _grow_volume(state: HostState, op: ops_grow.GrowVolume) -> None:
    root = state.root
    if op.pv != root.volume:
        raise OperationFailedError(f"{op.pv} is not a physical volume")
    gained = root.in_partition + root.in_group
    state.root = replace(root, in_partition=0, in_group=0, in_device=root.in_device + gained)


def _grow_filesystem(state: HostState, op: ops_grow.GrowFilesystem) -> None:
    del op
    state.root = replace(state.root, size=state.root.size + state.root.in_device, in_device=0)


def _command(state: HostState, op: ops.RunCommand) -> None:
    for path, content in state.commands.get(op.text, {}).items():
        _write(state, ops.WriteFile(path, content))
    if op.creates:
        _write(state, ops.WriteFile(op.creates, b""))
    if op.satisfies:
        state.probes[op.satisfies] = 0


_OPERATIONS: dict[type[Any], Callable[[HostState, Any], None]] = {
    ops.WriteFile: _write,
    ops.WriteBlob: _write_blob,
    ops.SetLine: _set_line,
    ops_edit.AddHostNames: _add_host_names,
    ops_edit.CommentOutSwap: _comment_out_swap,
    ops_edit.CommentOutLine: _comment_out_line,
    ops_edit.ReplaceUnchanged: _replace_seen,
    ops.RemoveFile: _remove,
    ops_saved.RestoreFile: _restore,
    ops_notes.Note: _note,
    ops_notes.BringBack: _bring_back,
    ops.MakeDirectory: _make_directory,
    ops.SetMode: _set_mode,
    ops.SetOwner: _set_owner,
    ops.LinkTo: _link,
    ops.InstallPackages: _install,
    InstallVersions: _install_versions,
    FetchLists: _fetch_lists,
    RemoveFolder: _remove_folder,
    MountPath: _mount,
    SetHostsEntry: _set_hosts_entry,
    SetFstabLine: _set_fstab_line,
    SetPowerLimit: _set_power_limit,
    AwaitToolkit: _await_toolkit,
    ResetFabric: reset_fabric,
    ClearMps: clear_mps,
    ops.RemovePackages: _uninstall,
    ops.HoldPackages: _hold,
    ops.SetUnit: _set_unit,
    ops.SetSysctl: _set_sysctl,
    ops.LoadModule: load_module,
    ops.SetHostname: _hostname,
    ops.SwapOff: _swap_off,
    ops_grow.GrowPartition: _grow_partition,
    ops_grow.GrowVolume: _grow_volume,
    ops_grow.GrowFilesystem: _grow_filesystem,
    ops.RunCommand: _command,
    **model_k3s.OPERATIONS,
    **model_dhcp.OPERATIONS,
}


def perform(state: HostState, op: object) -> None:
    """Do one operation.

    Raises:
        OperationFailedError: as its shell would end.
        KeyError: ModelHost does not know it.
    """
    _OPERATIONS[type(op)](state, op)


def known(op: type[Any]) -> bool:
    """Whether ModelHost can do an operation of this class."""
    return op in _OPERATIONS
