"""Files that k3s reads when it starts: where it runs, a change of their content costs its restart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from provision.contracts.effect import Effect
from provision.contracts.remedy import Impossible
from provision.contracts.snapshot import Snapshot
from provision.hosts import host_effects
from provision.hosts.resources.base import Operations
from provision.hosts.resources.file import File
from provision.hosts.resources.service import UnitState, UnitStatus
from provision.hosts.resources.upload import Upload
from provision.k3s.k3s_effects import RESTART_K3S
from provision.k3s.operations import KeepFormerToken


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
class ServerTokenFile(K3sFile):
    """The token file of a server; the one before it is noted for the snapshots that need it.

    Args:
        password: the bare token.
    """

    password: SecretStr | None = None

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how the former token is noted and the file written."""
        written = K3sFile.operations(self, snapshot)
        if isinstance(written, Impossible):
            return written
        changed = any(change.path in ("content", "file") for change in self.changes(snapshot))
        return [KeepFormerToken(self.password), *written] if changed and self.password else written

    def _secrets(self) -> tuple[SecretStr, ...]:
        return (self._secret_content(), *((self.password,) if self.password is not None else ()))


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
