"""Modules that are built into the kernel: modprobe.d has no effect on them, only kernel arguments have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from provision.contracts.change import Change, Op
from provision.contracts.snapshot import Snapshot
from provision.hosts.queries.kernel import CMDLINE, ModuleState
from provision.hosts.resources.base import HostResource, Operations
from provision.inventory.kernel_line import missing_arguments, values_of

INITCALLS: Mapping[str, str] = {
    "simpledrm": "simpledrm_platform_driver_init",
    "efifb": "efifb_driver_init",
    "vesafb": "vesafb_driver_init",
    "vfio_pci": "vfio_pci_init",
    "nouveau": "nouveau_drm_init",
    "i915": "i915_init",
    "amdgpu": "amdgpu_init",
    "radeon": "radeon_module_init",
    "nvidiafb": "nvidiafb_init",
}
"""First function of drivers, by the module_init lines of their sources."""
FIRMWARE_FRAMEBUFFERS = frozenset({"simpledrm", "efifb", "vesafb", "simplefb"})
"""Drivers of the framebuffer that drivers/firmware/sysfb.c announces: without `sysfb_init` they find none."""
_INITCALL_LIST = "initcall_blacklist"


def initcall_of(module: str) -> str:
    """Return the function that starts a built-in module; for those that are not known, how it is found."""
    return INITCALLS.get(module, f"FUNCTION (find it: grep '{module}.*init' /proc/kallsyms)")


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A module that is not built into the kernel, or whose kernel arguments are active.

    Args:
        resource: the resource that writes to modprobe.d.
        state: the module.
        writes: what is written there, with its verb, for messages.
        arguments: the kernel arguments that have the effect instead.
    """

    resource: HostResource
    state: ModuleState
    writes: str
    arguments: tuple[str, ...]

    def queries(self) -> tuple[Any, ...]:
        """Return the queries: the module, and the active command line."""
        return self.state, CMDLINE

    def _missing(self, snapshot: Snapshot) -> tuple[str, ...]:
        if snapshot[self.state] != "builtin":
            return ()
        line = (snapshot[CMDLINE] or b"").decode("utf-8", "replace")
        if not self.arguments[0].startswith(f"{_INITCALL_LIST}="):
            return missing_arguments(line, self.arguments)
        name = self.state.name
        off = values_of(line, _INITCALL_LIST)
        if name in FIRMWARE_FRAMEBUFFERS and "sysfb_init" in off:
            return ()
        return () if any(function.startswith(name) for function in off) else self.arguments

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return the arguments that the running kernel lacks."""
        missing = self._missing(snapshot)
        if not missing:
            return ()
        return (Change(Op.ATTENTION, "value", f"{self.writes} no effect", " ".join(missing)),)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return which kernel arguments have the effect."""
        missing = self._missing(snapshot)
        if not missing:
            return ()
        return self.resource.refusal(
            "MODULE_BUILT_IN",
            f"{self.state.name} is built into the kernel: {self.writes} no effect on it",
            untouched="nothing of the module was changed",
            remedy="set it on the kernel line (`kernel_arguments:` of a hypervisor): " + " ".join(missing),
        )
