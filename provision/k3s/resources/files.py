"""Files that k3s reads when it starts: where it runs, a change of their content costs its restart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from provision.contracts.effect import Effect
from provision.contracts.snapshot import Snapshot
from provision.hosts import host_effects
from provision.hosts.resources.file import File
from provision.hosts.resources.service import UnitState, UnitStatus
from provision.hosts.resources.upload import Upload
from provision.k3s.k3s_effects import RESTART_K3S


def _restart(snapshot: Snapshot, unit: str, *, changed: bool, reload: bool = False) -> tuple[Effect, ...]:
    """Return what a change costs: nothing before the first start, which reads the files anyway."""
    status: UnitStatus = snapshot[UnitState(unit)]
    if not changed or not status.exists or status.stopped:
        return ()
    return (*((Effect(host_effects.DAEMON_RELOAD),) if reload else ()), Effect(RESTART_K3S))


@dataclass(frozen=True, slots=True)
class K3sFile(File):
    """A configuration file of k3s.

    Args:
        unit: the unit that reads it.
        is_unit: it is the unit itself.
    """

    unit: str = ""
    is_unit: bool = False

    def queries(self) -> tuple[Any, ...]:
        """Return the query about the file, and that about the unit."""
        return (self.query, UnitState(self.unit))

    def _due_effects(self, snapshot: Snapshot, /) -> tuple[Effect, ...]:
        changed = any(change.path in ("content", "file") for change in self.changes(snapshot))
        return _restart(snapshot, self.unit, changed=changed, reload=self.is_unit)


@dataclass(frozen=True, slots=True)
class K3sUpload(Upload):
    """The binary of k3s, or the archive of its images.

    Args:
        unit: the unit that reads it.
    """

    unit: str = ""

    def queries(self) -> tuple[Any, ...]:
        """Return the query about the file, and that about the unit."""
        return (self.query, UnitState(self.unit))

    def _due_effects(self, snapshot: Snapshot, /) -> tuple[Effect, ...]:
        changed = any(change.path == "content" for change in self.changes(snapshot))
        return _restart(snapshot, self.unit, changed=changed)
