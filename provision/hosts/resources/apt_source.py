"""Package sources of our own on a host, with the lists that apt has fetched of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.remedy import Blob
from provision.contracts.resource import AnswerId
from provision.contracts.snapshot import Snapshot
from provision.hosts.apt_sources import ARCHIVE, CONFIG, STAMP
from provision.hosts.operations import basic as ops
from provision.hosts.operations.apt import FetchLists, RemoveFolder
from provision.hosts.protocol.script import APT_FOLDER
from provision.hosts.queries.file import FileState, FileStatus
from provision.hosts.resources.base import HostResource, Operations

LISTS = FileState(STAMP)
"""Whether the lists of our own sources were ever fetched: what apt offers depends on it."""


@dataclass(frozen=True, slots=True)
class AptSource(HostResource):
    """Files of our own sources, what a bundle has of the archive, and the lists.

    Args:
        texts: content by path: configuration, sources, key.
        blobs: what is sent of a bundle, by path: indexes and packages.
        keyring: file with the keys that sign the archive.
        label: what it is, as plans show it.
    """

    kind: ClassVar[str] = "apt-source"

    texts: tuple[tuple[str, str], ...]
    blobs: tuple[tuple[str, Blob], ...] = field(default=(), repr=False)
    keyring: str = ""
    label: str = ""

    def _key_name(self) -> str:
        return "packages"

    @property
    def _stamp(self) -> bytes:
        rows = [f"{_digest(text)} {path}" for path, text in self.texts]
        rows += [f"{blob.sha256} {path}" for path, blob in self.blobs if "/dists/" in path]
        return f"{_digest(chr(10).join(rows))}\n".encode()

    @property
    def _files(self) -> dict[str, FileState]:
        """The query by path."""
        wanted = {path: _digest(text) for path, text in self.texts}
        wanted |= {path: blob.sha256 for path, blob in self.blobs}
        return {path: FileState(path, want=sha256) for path, sha256 in wanted.items()}

    @property
    def _fetched(self) -> FileState:
        return FileState(STAMP, want=hashlib.sha256(self._stamp).hexdigest())

    def queries(self) -> tuple[FileState, ...]:
        """Return one query for each file, and that of the lists."""
        return (*self._files.values(), self._fetched)

    def creation(self) -> tuple[Change, ...]:
        """Return it as missing."""
        return (Change(Op.CREATE, "source", None, self.label), Change(Op.CREATE, "lists", None, "fetched"))

    def _differing(self, snapshot: Snapshot) -> list[str]:
        statuses: dict[str, FileStatus] = {path: snapshot[query] for path, query in self._files.items()}
        return [path for path, query in self._files.items() if statuses[path].digest != query.want]

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return whether sources, files of the bundle, or lists are other ones."""
        differing = self._differing(snapshot)
        texts = {path for path, _ in self.texts}
        sent = [blob for path, blob in self.blobs if path in differing]
        changes: list[Change] = []
        if texts.intersection(differing):
            op = Op.UPDATE if snapshot[self._files[CONFIG]].exists else Op.CREATE
            changes.append(Change(op, "source", "another" if op is Op.UPDATE else None, self.label))
        if sent:
            changes.append(Change(Op.CREATE, "archive", None, f"{len(sent)} files of the bundle"))
        status: FileStatus = snapshot[self._fetched]
        if status.digest != self._fetched.want:
            changes.append(
                Change(Op.UPDATE, "lists", "of another source" if status.exists else None, "fetched")
            )
        return tuple(changes)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return the files that differ, and then the lists."""
        differing = set(self._differing(snapshot))
        operations: list[ops.Operation] = [
            ops.WriteBlob(path, blob, "0644") for path, blob in self.blobs if path in differing
        ]
        for path, text in self.texts:
            if path in differing:
                operations.append(ops.WriteFile(path, text.encode(), "0644", "root", "root", save=False))
        if snapshot[self._fetched].digest != self._fetched.want:
            # the folder itself, and what is in it but the lists, which apt has made for itself
            readable = [path for path, _ in self.texts]
            readable += [ARCHIVE] if self.blobs else []
            operations.append(FetchLists(CONFIG, self.keyring, tuple(readable)))
            operations.append(ops.WriteFile(STAMP, self._stamp, "0644", "root", "root", save=False))
        return operations

    def affects(self, changes: Sequence[Change], /) -> frozenset[AnswerId]:
        """Return what roles ask that choose among the packages on offer."""
        return frozenset({(self.system, LISTS)}) if changes else frozenset()

    def _seconds(self) -> float:
        return 1800.0


@dataclass(frozen=True, slots=True)
class AptSourceGone(HostResource):
    """No package sources of our own: apt uses those of the host alone."""

    kind: ClassVar[str] = "apt-source-gone"

    def _key_name(self) -> str:
        return "packages"

    def queries(self) -> tuple[FileState, ...]:
        """Return the one query."""
        return (FileState(APT_FOLDER),)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return its removal."""
        status: FileStatus = snapshot[FileState(APT_FOLDER)]
        return (Change(Op.DELETE, "source", APT_FOLDER, None),) if status.exists else ()

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how it goes."""
        del snapshot
        return [RemoveFolder(APT_FOLDER)]

    def affects(self, changes: Sequence[Change], /) -> frozenset[AnswerId]:
        """Return what roles ask that choose among the packages on offer."""
        return frozenset({(self.system, LISTS)}) if changes else frozenset()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
