"""The NVLink fabric of a host, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.snapshot import Snapshot
from provision.gpu.fabric import FabricState, FabricStatus, ResetFabric
from provision.hosts.resources.base import HostResource, Operations


@dataclass(frozen=True, slots=True)
class NvlinkFabric(HostResource):
    """A fabric whose daemon runs, whose cards have joined it, and of which the kernel reports no error.

    Args:
        units: units that start users of the cards; stopped for a reset.
    """

    kind: ClassVar[str] = "nvlink-fabric"

    units: tuple[str, ...] = ()

    def _key_name(self) -> str:
        return "fabric"

    def queries(self) -> tuple[FabricState, ...]:
        """Return the one query."""
        return (FabricState(),)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return what is not in order."""
        status: FabricStatus = snapshot[FabricState()]
        return tuple(Change(Op.UPDATE, name, old, new) for name, old, new in status.faults)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return the reset; refused where nobody could see whether it helped."""
        status: FabricStatus = snapshot[FabricState()]
        if not status.is_readable:
            return self.refusal(
                "FABRIC_LOG_UNREADABLE",
                "the kernel's log is not readable, so nothing would show whether a reset helped",
                untouched="the cards were not reset",
                remedy="make `journalctl -k -b` or `dmesg` readable on the node",
            )
        return [ResetFabric(self.units)]

    def _seconds(self) -> float:
        return 600.0
