"""How network namespaces share RDMA devices: the mode of the kernel's RDMA core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.change import Settles
from provision.contracts.effect import Effect
from provision.contracts.snapshot import Snapshot
from provision.hosts.resources.base import HEADER, Composite, Live, Part
from provision.hosts.resources.file import File
from provision.hosts.resources.kernel import INITRAMFS
from provision.rdma.queries import RdmaState, RdmaStatus

OPTIONS_FILE = "/etc/modprobe.d/provision-rdma-netns.conf"


@dataclass(frozen=True, slots=True)
class NamespaceMode(Composite):
    """The option `netns_mode` of ib_core: at the next load, and active.

    At run time the mode can be changed only while no device is in use (rdma-system(8): "Device or resource
    busy"), so a boot changes it.

    Args:
        mode: `shared` or `exclusive`.
        reboot: what makes another mode active.
        built_in: the core takes the option on the kernel line; no file is written.
    """

    kind: ClassVar[str] = "rdma-namespaces"

    mode: str
    reboot: Effect
    built_in: bool = False

    def _key_name(self) -> str:
        return "netns"

    @property
    def option(self) -> str:
        """The option as a module or the kernel line takes it, without its module."""
        return f"netns_mode={1 if self.mode == 'shared' else 0}"

    @property
    def file(self) -> File:
        """The file of modprobe.d(5)."""
        text = None if self.built_in else f"{HEADER}options ib_core {self.option}\n"
        return File.of_text(self.system, OPTIONS_FILE, text, self.source)

    def parts(self) -> Mapping[str, Part]:
        """Return the file and the active mode; a core that is not loaded takes the mode when it is."""
        return {
            "at boot": self.file,
            "active": Live(RdmaState(), self._active, self.mode, settles=Settles.AFTER_EFFECT),
        }

    def _active(self, status: RdmaStatus) -> str:
        return status.netns or self.mode

    def _due_effects(self, snapshot: Snapshot, /) -> tuple[Effect, ...]:
        written = () if not self.file.changes(snapshot) else (INITRAMFS,)
        inactive = self._active(snapshot[RdmaState()]) != self.mode
        return (*written, *self.effects, *((self.reboot,) if inactive else ()))
