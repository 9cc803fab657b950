"""CNI programs that k3s does not bring, in the folder where its containerd looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.snapshot import Snapshot
from provision.hosts.operations import basic as ops
from provision.hosts.queries.file import FileState, FileStatus
from provision.hosts.resources.base import HostResource, Operations
from provision.k3s.cni_folders import PROGRAMS
from provision.rdma.cni_paths import PACKAGED


@dataclass(frozen=True, slots=True)
class CniProgram(HostResource):
    """A program that containerd calls by name. One that is there stays: k3s or a person put it there.

    A link is enough: the program runs on the host. A copy would miss the package's security updates.

    Args:
        name: of the program.
    """

    kind: ClassVar[str] = "cni-program"

    name: str

    def _key_name(self) -> str:
        return self.name

    @property
    def path(self) -> str:
        """Where containerd looks for it."""
        return f"{PROGRAMS}/{self.name}"

    def queries(self) -> tuple[FileState, ...]:
        """Return the one query."""
        return (FileState(self.path),)

    def creation(self) -> tuple[Change, ...]:
        """Return it as missing."""
        return (Change(Op.CREATE, self.path, None, f"link to {PACKAGED}/{self.name}"),)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return it as missing, or a folder in its place."""
        status: FileStatus = snapshot[FileState(self.path)]
        if status.type in ("directory", "other"):
            return (Change(Op.ATTENTION, "type", status.type, "file"),)
        return () if status.exists else self.creation()

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how it is linked."""
        status: FileStatus = snapshot[FileState(self.path)]
        if status.exists:
            return self.refusal(
                "FILE_TYPE_WRONG",
                f"{self.path} is a {status.type}, and provision does not replace it",
                untouched=f"{self.path} was not changed",
                remedy="move it away, then run the command again",
            )
        return [ops.LinkTo(self.path, f"{PACKAGED}/{self.name}")]
