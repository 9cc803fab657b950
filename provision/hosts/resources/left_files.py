"""What provision left beside a file that it replaced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.snapshot import Snapshot
from provision.hosts.operations import basic as ops
from provision.hosts.queries.left_files import FileNames
from provision.hosts.resources.base import HostResource, Operations


@dataclass(frozen=True, slots=True)
class CopiesGone(HostResource):
    """No copy is left whose name begins like this.

    Args:
        path: folder and beginning of the name.
    """

    kind: ClassVar[str] = "copies-gone"

    path: str

    def _key_name(self) -> str:
        return self.path

    @property
    def _query(self) -> FileNames:
        folder, _, prefix = self.path.rpartition("/")
        return FileNames(folder, prefix)

    def queries(self) -> tuple[FileNames, ...]:
        """Return the one query."""
        return (self._query,)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return the copies that are there."""
        return tuple(Change(Op.DELETE, path, "file", None) for path in snapshot[self._query])

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return their removal."""
        return [ops.RemoveFile(path, save=False) for path in snapshot[self._query]]
