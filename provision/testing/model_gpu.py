"""The GPUs of a host in memory: cards, the driver that packages bring, and what a boot makes of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from provision.gpu.fabric import DAEMON, SIGN, FabricStatus, ResetFabric
from provision.gpu.mps import ClearMps, MpsStatus
from provision.gpu.queries import CardStatus, GpuState, GpuStatus, upstream
from provision.gpu.words import NVIDIA, Meaning
from provision.testing.model_state import HostState, ModelUnit

CARDS = {"10de:2330": ("NVIDIA H100 80GB HBM3", 81559), "10de:2204": ("NVIDIA GeForce RTX 3090", 24576)}
"""Name and MiB by PCI id; others are called `NVIDIA Card` and have 16384 MiB."""
_MODULES = (
    "nvidia-kernel-dkms",
    "nvidia-open-kernel-dkms",
    "nvidia-dkms-",
    "linux-modules-nvidia-",
    "nvidia-open",
)
_LEAVES = ("libnvidia-compute", "libcuda1")


def on_disk(state: HostState) -> str:
    """Return the version of the module that the next boot loads; empty for none."""
    if state.foreign_driver:
        return state.foreign_driver
    has_module = any(name.startswith(_MODULES) for name, version in state.packages.items() if version)
    return library(state) if has_module else ""


def library(state: HostState) -> str:
    """Return the version of the user-space library that packages brought."""
    versions = (version for name, version in state.packages.items() if name.startswith(_LEAVES))
    return next((upstream(version) for version in versions if version), state.foreign_driver)


def gpu_state(state: HostState, query: GpuState) -> object:
    """Return what a host says of its GPUs."""
    del query
    loaded = state.loaded_driver
    libraries = tuple(filter(None, (library(state),)))
    cards = tuple(
        _card(state, index, function.pci.address, function.pci.id)
        for index, function in enumerate(
            sorted(
                (function for function in state.functions if function.driver == "nvidia"),
                key=lambda function: function.pci.address,
            )
        )
    )
    works = bool(loaded) and libraries == (loaded,)
    return GpuStatus(
        loaded=loaded,
        is_open=bool(loaded),
        next_kernel=max(state.kernels),
        on_disk=on_disk(state),
        signed="Model" if on_disk(state) else "",
        libraries=libraries,
        secure_boot=state.secure_boot,
        nvlink_off=bool(loaded) and state.nvlink_off,
        peer_memory=state.peer_memory,
        peermem_loaded="nvidia_peermem" in state.modules,
        unlinked=("/dev/nvidia0", "/dev/nvidiactl") if state.unlinked_cards else (),
        tool=bool(libraries),
        cards=cards if works else (),
        failure=""
        if works or not libraries
        else "Failed to initialize NVML: Driver/library version mismatch",
    )


def _card(state: HostState, index: int, address: str, ids: str) -> CardStatus:
    name, memory = CARDS.get(ids, ("NVIDIA Card", 16384))
    card = CardStatus(
        address,
        index,
        name,
        f"GPU-{index + 1:08d}-0000-4000-8000-{index + 1:012d}",
        memory,
        compute="9.0",
        ecc="Enabled",
        mig="Disabled",
        persistence="Enabled",
        power_limit=state.power_limits.get(address, 350.0),
    )
    return replace(card, **state.card_faults.get(address, {}))


def drive_gpus(state: HostState) -> None:
    """Do what a boot does: load the module that is on the disk, unless another driver has the cards."""
    version = on_disk(state)
    free = [
        function
        for function in state.functions
        if function.pci.vendor == NVIDIA and function.pci.is_display and not function.driver
    ]
    state.loaded_driver, state.nvlink_off = "", False
    state.power_limits = {}
    if not version or not free or "nvidia" in state.blacklisted():
        return
    for function in free:
        function.driver = "nvidia"
    state.modules |= {"nvidia", "nvidia_uvm"}
    state.loaded_driver = version
    state.nvlink_off = any(
        "NVreg_NvLinkDisable=1" in state.text(path) for path in state.below("/etc/modprobe.d/", ".conf")
    )
    unit = state.units.get("provision-gpu-power.service")
    match = re.search(
        r"nvidia-smi -pl ([0-9]+)", state.text("/etc/systemd/system/provision-gpu-power.service")
    )
    if unit is not None and unit.file == "enabled" and match is not None:
        set_power_limits(state, int(match[1]))


def set_power_limits(state: HostState, watts: int) -> None:
    """Set the power limit of each card that the driver has."""
    addresses = (function.pci.address for function in state.functions if function.driver == "nvidia")
    state.power_limits = dict.fromkeys(addresses, float(watts))


def archive_drivers(state: HostState, origin: str = "debian", *versions: str) -> None:
    """Give a host archives with a driver of one origin, newest version first."""
    numbers = versions or ("580.178.04", "580.159.04")
    shapes = {"debian": _debian, "ubuntu": _ubuntu, "nvidia": _nvidia}
    shapes[origin](state, numbers)
    state.brings["nvidia-persistenced"] = ("nvidia-persistenced.service",)


def _offer(
    state: HostState, origin: str, name: str, versions: Sequence[str], pulls: Sequence[str] = ()
) -> None:
    state.archive[name] = tuple((version, origin) for version in versions)
    state.pulls[name] = tuple(pulls)


def _debian(state: HostState, numbers: Sequence[str]) -> None:
    versions = [f"{number}-1~deb12u1" for number in numbers]
    for name in ("nvidia-smi", "libcuda1", "nvidia-open-kernel-dkms", "nvidia-kernel-dkms"):
        _offer(state, "Debian", name, versions)
    # Not of the driver's version: it is a source package of its own.
    _offer(state, "Debian", "nvidia-persistenced", ["535.171.04-1~deb12u1"])
    _offer(state, "Debian", "linux-headers-amd64", ["6.1.1"])


def _ubuntu(state: HostState, numbers: Sequence[str]) -> None:
    versions = [f"{number}-0ubuntu0.24.04.1" for number in numbers]
    branch = f"{numbers[0].split('.')[0]}-server"
    utilities, library_name = f"nvidia-compute-utils-{branch}", f"libnvidia-compute-{branch}"
    state.brings[utilities] = ("nvidia-persistenced.service",)
    for name in (utilities, library_name):
        _offer(state, "Ubuntu", name, versions)
    for kind in ("", "-open"):
        _offer(state, "Ubuntu", f"nvidia-driver-{branch}{kind}", versions, (utilities, library_name))
        _offer(state, "Ubuntu", f"nvidia-dkms-{branch}{kind}", versions)
        _offer(state, "Ubuntu", f"linux-modules-nvidia-{branch}{kind}-generic", ["6.8.0-79.79+1"])
    fabric = f"nvidia-fabricmanager-{numbers[0].split('.')[0]}"
    _offer(state, "Ubuntu", fabric, versions)
    state.brings[fabric] = ("nvidia-fabricmanager.service",)
    _offer(state, "Ubuntu", "linux-headers-generic", ["6.8.0.79.79"])


def _nvidia(state: HostState, numbers: Sequence[str]) -> None:
    versions = [f"{number}-1ubuntu1" for number in numbers]
    for name in ("nvidia-persistenced", "libnvidia-compute"):
        _offer(state, "NVIDIA", name, versions)
    for name in ("nvidia-open", "cuda-drivers"):
        _offer(
            state, "NVIDIA", name, versions, ("nvidia-persistenced", "libnvidia-compute", "nvidia-dkms-open")
        )
    _offer(state, "NVIDIA", "nvidia-dkms-open", versions)
    _offer(state, "NVIDIA", "nvidia-fabricmanager", versions)
    state.brings["nvidia-fabricmanager"] = ("nvidia-fabricmanager.service",)
    _offer(state, "Ubuntu", "linux-headers-generic", ["6.8.0.79.79"])
    _offer(state, "Debian", "linux-headers-amd64", ["6.1.1"])


# ---------------------------------------------------------------- what commands of checks print

Answer = tuple[int, str]
_COLUMNS = {
    "pci.bus_id": "address",
    "uuid": "uuid",
    "name": "name",
    "memory.total": "memory",
    "ecc.mode.current": "ecc",
    "mig.mode.current": "mig",
    "power.limit": "power_limit",
}
_PRINTED = {Meaning.NOT_APPLICABLE: "[N/A]", Meaning.BROKEN: "[Unknown Error]", Meaning.UNKNOWN: "[Unknown]"}


def link_text(state: HostState) -> Answer:
    """Return which device files have links in /dev/char."""
    word = "unlinked" if state.unlinked_cards else "linked"
    return 0, f"{word} /dev/nvidia0\n{word} /dev/nvidiactl\n"


_WORDS = {
    "compute_mode": "Default",
    "clocks_throttle_reasons.hw_thermal_slowdown": "Not Active",
    "clocks_throttle_reasons.hw_power_brake_slowdown": "Not Active",
}
"""What nvidia-smi prints of a card in order, by field."""


def smi_text(state: HostState, fields: str) -> Answer:
    """Return what nvidia-smi prints of every card."""
    status = gpu_state(state, GpuState())
    if not isinstance(status, GpuStatus) or not status.cards:
        return 9, "No devices were found\n"
    words, names = {**_WORDS, **state.card_words}, fields.split(",")
    rows = [[words.get(name) or _column(status, card, name) for name in names] for card in status.cards]
    lines = [", ".join(row) for row in rows]
    return 0, "".join(f"{line}\n" for line in lines)


def _column(status: GpuStatus, card: CardStatus, field: str) -> str:
    if field == "driver_version":
        return status.libraries[0]
    if field.startswith("fabric."):
        state = card.fabric or ("Completed", "Success")
        return state[0] if field == "fabric.state" else state[-1]
    value = getattr(card, _COLUMNS[field])
    if field == "pci.bus_id":
        return f"0000{value}".upper()
    return _PRINTED.get(value, "") if isinstance(value, Meaning) else str(value)


def pci_text(state: HostState) -> Answer:
    """Return address, vendor, class and driver of every function."""
    rows = (
        f"{function.pci.address} {function.pci.vendor} {function.pci.cls} {function.driver or 'none'}\n"
        for function in state.functions
    )
    return 0, "".join(rows)


def fabric_state(state: HostState) -> FabricStatus:
    """Return what a host says of its NVLink fabric."""
    unit = state.units.get(DAEMON)
    daemon = "" if unit is None else "active" if unit.active else "inactive"
    errors = tuple(line for line in state.kernel_log if SIGN in line)
    status = gpu_state(state, GpuState())
    listed = status.cards if isinstance(status, GpuStatus) else ()
    cards = tuple(", ".join(card.fabric or ("Completed", "Success")) for card in listed)
    return FabricStatus(daemon, cards, () if state.fabric_is_reset else errors, True)


def reset_fabric(state: HostState, op: ResetFabric) -> None:
    """Reset cards and switches; lines of before count no more."""
    del op
    state.fabric_is_reset = True
    state.card_faults = {
        address: {name: value for name, value in faults.items() if name != "fabric"}
        for address, faults in state.card_faults.items()
    }
    state.units.setdefault(DAEMON, ModelUnit()).active = True


def clear_mps(state: HostState, op: ClearMps) -> None:
    """Let servers of the device plugin end, and take away what they left."""
    del op
    if state.mps.killed and not state.mps.other:
        state.card_words.pop("compute_mode", None)
    other = state.mps.other
    state.mps = MpsStatus(other=other, has_memory=state.mps.has_memory and other)


def mps_text(state: HostState) -> Answer:
    """Return the folders that servers of MPS left."""
    return 0, "".join(f"{path}\n" for path in (*state.mps.killed, *state.mps.ended))


def fabric_log_text(state: HostState) -> Answer:
    """Return what the kernel said of the fabric since its reset, after whether the log is readable."""
    errors = [line for line in state.kernel_log if SIGN in line and not state.fabric_is_reset]
    return 0, "".join(f"{line}\n" for line in ("log yes", *errors))


def kernel_log_text(state: HostState) -> Answer:
    """Return whether the log reaches back to the boot, and its Xids."""
    return 0, "".join(f"{line}\n" for line in ("1", *state.kernel_log))


def next_module_text(state: HostState) -> Answer:
    """Return the kernel of the next boot and the version of its module."""
    return 0, f"{max(state.kernels)}\n{on_disk(state)}\n"
