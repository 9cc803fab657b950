"""What ModelHost does: effects and boots, by meaning."""

from __future__ import annotations

from provision.contracts.effect import Effect
from provision.hosts import host_effects
from provision.hosts.operations import basic as ops
from provision.hosts.queries.kernel import module_name
from provision.hosts.resources.kernel import KERNEL_CMDLINE
from provision.hosts.resources.pci import VFIO
from provision.k3s import k3s_effects
from provision.testing import model_k3s
from provision.testing.model_answers import blacklist_of
from provision.testing.model_boot import boot_settings, boot_swap, grub_defaults
from provision.testing.model_gpu import drive_gpus
from provision.testing.model_ops import load_module, start_unit
from provision.testing.model_rdma import booted
from provision.testing.model_state import HostState, OperationFailedError


def bring_about(state: HostState, effect: Effect) -> None:
    """Do one effect that a host does by itself; reboots have a call of their own.

    Raises:
        OperationFailedError: as its shell would end.
        ValueError: no host does this by itself.
    """
    if effect.cls == host_effects.DAEMON_RELOAD:
        for unit in state.units.values():
            unit.needs_reload = False
    elif effect.cls == host_effects.INITRAMFS:
        kept = state.blacklisted() | state.by_slot()
        state.initramfs = dict.fromkeys(state.kernels, kept)
    elif effect.cls == host_effects.BOOT_LOADER:
        state.boot_line = next_line(state)
    elif effect.cls in (host_effects.RELOAD, host_effects.RESTART):
        _restart(state, effect)
    elif effect.cls == k3s_effects.RESTART_K3S:
        for name in model_k3s.UNITS:
            if name in state.units and state.units[name].file == "enabled":
                start_unit(state, name)
    else:
        raise ValueError(f"no host brings about {effect} by itself")


def _restart(state: HostState, effect: Effect) -> None:
    name = effect.target
    if name not in state.units:
        raise OperationFailedError(f"Unit {name} not found.")
    if effect.cls == host_effects.RELOAD and not state.units[name].active:
        return
    start_unit(state, name)


def next_line(state: HostState) -> str:
    """Return what the boot loader's tool would write from the files as they are.

    Raises:
        OperationFailedError: there is no boot loader.
    """
    if state.loader == "systemd-boot":
        return state.text(KERNEL_CMDLINE).strip()
    if state.loader != "grub":
        raise OperationFailedError("no known boot loader tool is installed")
    return f"BOOT_IMAGE=/boot/vmlinuz root=/dev/vda1 ro {grub_defaults(state)}".rstrip()


def boot(state: HostState) -> None:
    """Shut down and boot: what was only written becomes true, what was only set is lost."""
    state.boots += 1
    state.cmdline = state.boot_line
    state.running = max(state.kernels)
    state.modules = set(state.base_modules)
    _probe(state)
    drive_gpus(state)
    state.rdma = booted(state.rdma, _lines(state, "/etc/modprobe.d/"), state.cmdline)
    off = state.blacklisted() | blacklist_of(state.cmdline)
    for line in _lines(state, "/etc/modules-load.d/"):
        if (
            module_name(line) not in off
        ):  # systemd-modules-load minds the blacklist, modprobe(8) by name does not
            load_module(state, ops.LoadModule(line))
    state.sysctls = dict(state.base_sysctls)
    for file in state.sysctls:
        for setting in boot_settings(state, file):
            state.sysctls[file] = setting.value
    for name, unit in state.units.items():
        unit.needs_reload = unit.waiting = False
        unit.active = unit.active if unit.file == "static" else unit.file == "enabled"
        if unit.active:
            start_unit(state, name)
    state.hostname = state.text("/etc/hostname").strip() or state.hostname
    rows = [line.split() for line in state.text("/etc/fstab").split("\n") if not line.startswith("#")]
    state.swaps = tuple(row[0] for row in rows if row[2:3] == ["swap"])
    state.mounts = {row[1]: row[0] for row in rows if row[2:3] == ["nfs"]}
    # zramswap.service and dev-zram0.swap alike
    state.swaps += ("/dev/zram0",) if any("zram" in unit.name for unit in boot_swap(state)) else ()


def _probe(state: HostState) -> None:
    """Load every module that finds a device and is not kept off; the first one gets the device."""
    kept = state.initramfs.get(state.running, frozenset()) | blacklist_of(state.cmdline)
    for function in state.functions:
        function.override = VFIO if function.pci.address in kept else ""
        candidates = [name for name in function.modules if module_name(name) not in kept]
        if function.override:
            candidates = []
        function.driver = candidates[0] if candidates else ""
        state.modules.update(
            module_name(name) for name in candidates if module_name(name) not in state.builtin
        )


def _lines(state: HostState, folder: str) -> list[str]:
    """Return what the configuration files of a folder say, without comments."""
    lines = [line.strip() for path in state.below(folder, ".conf") for line in state.text(path).split("\n")]
    return [line for line in lines if line and not line.startswith("#")]
