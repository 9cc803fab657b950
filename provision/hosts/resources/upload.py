"""A large file that the controller pushes: a binary, an archive of container images."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.remedy import Blob, Impossible
from provision.contracts.snapshot import Snapshot
from provision.hosts.operations import basic as ops
from provision.hosts.queries.file import FileState, FileStatus
from provision.hosts.resources.base import HostResource, Operations, checked_path
from provision.hosts.resources.file import same_mode


@dataclass(frozen=True, slots=True)
class Upload(HostResource):
    """A file whose content is known by its digest, and read on the controller only when it is sent.

    Args:
        path: absolute path on the host.
        blob: its content.
        mode: octal as typed.
        label: what it is, as plans show it (`k3s v1.35.7+k3s1`).
    """

    kind: ClassVar[str] = "upload"

    path: str
    blob: Blob = field(repr=False)
    mode: str = "0755"
    label: str = ""

    def __post_init__(self) -> None:
        checked_path(self.path)

    def _key_name(self) -> str:
        return self.path

    @property
    def query(self) -> FileState:
        """The query about it."""
        return FileState(self.path, want=self.blob.sha256)

    def queries(self) -> tuple[FileState, ...]:
        """Return the one query."""
        return (self.query,)

    @property
    def _shown(self) -> str:
        return f"{self.label} (sha256 {self.blob.sha256[:12]})".strip()

    def creation(self) -> tuple[Change, ...]:
        """Return it as missing."""
        return (Change(Op.CREATE, "content", None, self._shown),)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return what differs in content and mode."""
        status: FileStatus = snapshot[self.query]
        if not status.exists:
            return self.creation()
        if status.type != "file":
            return (Change(Op.ATTENTION, "type", status.type, "file"),)
        if status.digest != self.blob.sha256:
            return (Change(Op.UPDATE, "content", f"sha256 {status.digest[:12]}", self._shown),)
        if not same_mode(status.mode, self.mode):
            return (Change(Op.UPDATE, "mode", status.mode, self.mode),)
        return ()

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how it is put in place, or gets its mode."""
        status: FileStatus = snapshot[self.query]
        if status.exists and status.type != "file":
            return self._type_refused(status.type)
        if status.digest == self.blob.sha256:
            return [ops.SetMode(self.path, self.mode)]
        return [ops.WriteBlob(self.path, self.blob, self.mode)]

    def _type_refused(self, type_: str) -> Impossible:
        return self._refused(
            "FILE_TYPE_WRONG",
            f"{self.path} is a {type_}, and provision does not replace it",
            untouched=f"{self.path} was not changed",
            remedy="move it away, then run the command again",
        )

    def _seconds(self) -> float:
        return 900.0
