"""The GPUs of a host in memory: cards, the driver that packages bring, and what a boot makes of them."""

from __future__ import annotations

from dataclasses import replace

from provision.gpu.queries import CardStatus, GpuState, GpuStatus, upstream
from provision.testing.model_state import HostState

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
