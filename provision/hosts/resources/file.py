"""Files, lines in files, folders: resources."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

from pydantic import SecretStr

from provision.contracts.change import Change, Op
from provision.contracts.remedy import Impossible
from provision.contracts.snapshot import Snapshot
from provision.hosts.operations import basic as ops
from provision.hosts.operations import edit as ops_edit
from provision.hosts.operations.saved import RestoreFile
from provision.hosts.queries.file import FileState, FileStatus, FileText, digest_of, salt_of
from provision.hosts.queries.saved import FILE, NOTHING, RESTORED, SavedFile
from provision.hosts.resources.base import HostResource, Operations, checked_line, checked_owner, checked_path
from provision.values.diagnostics import Source

_SHOWN = 4000
"""Characters of content that a change shows at most."""

_cached_digest = lru_cache(maxsize=8192)(digest_of)


def shown(content: bytes | None, fallback: str = "") -> str:
    """Return content as a person may read it; binary and long content by its size and hash."""
    if content is None:
        return fallback
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text or len(text) > _SHOWN:
        return f"{len(content)} bytes, sha256 {digest_of(content)[:12]}"
    return text


def same_mode(one: str, other: str) -> bool:
    """Whether two octal modes mean the same permissions."""
    return one == other or int(one, 8) == int(other, 8)


@dataclass(frozen=True, slots=True)
class _Entry(HostResource):
    """Something at a path."""

    path: str

    def __post_init__(self) -> None:
        checked_path(self.path)

    def _key_name(self) -> str:
        return self.path

    def _link_refused(self) -> Impossible:
        return self._refused(
            "FILE_IS_LINK",
            f"{self.path} is a symbolic link, and provision does not write through links",
            untouched=f"{self.path} and its target were not changed",
            remedy="remove the link, or declare the file that it points to",
        )

    def _type_refused(self, type_: str) -> Impossible:
        return self._refused(
            "FILE_TYPE_WRONG",
            f"{self.path} is a {type_}, and provision does not replace it",
            untouched=f"{self.path} was not changed",
            remedy="move it away, then run the command again",
        )


@dataclass(frozen=True, slots=True)
class File(_Entry):
    """A whole file, or that there is none.

    Args:
        path: absolute path on the host.
        content: its bytes; None leaves the content of an existing file alone and makes a missing one empty.
        mode: octal as typed (`0644`); empty is unmanaged.
        owner: user name or number; empty is unmanaged (root for a new file).
        group: likewise.
        absent: the file must not be there.
        secret: the content is compared by a salted hash, and never shown or fetched.
        restores: with `absent`, a file that was there before is put back instead.
    """

    kind: ClassVar[str] = "file"

    content: bytes | None = field(default=None, repr=False)
    mode: str = "0644"
    owner: str = ""
    group: str = ""
    absent: bool = False
    secret: bool = False
    restores: bool = False

    def __post_init__(self) -> None:
        checked_path(self.path)
        checked_owner(self.owner)
        checked_owner(self.group)

    @classmethod
    def of_text(cls, system: str, path: str, text: str | None, source: Source | None) -> File:
        """Return the file with a text; None means that there must be no file."""
        content = None if text is None else text.encode()
        return cls(system, path, content, absent=text is None, source=source)

    @property
    def query(self) -> FileState:
        """The query about it."""
        if self.absent or self.content is None:
            return FileState(self.path)
        if self.secret:
            return FileState(self.path, salt=salt_of(self.system, self.path))
        return FileState(self.path, want=_cached_digest(self.content))

    def queries(self) -> tuple[FileState | SavedFile, ...]:
        """Return the query, and that about what was there before where it is put back."""
        return (self.query, SavedFile(self.path)) if self.restores else (self.query,)

    def _saved(self, snapshot: Snapshot) -> str:
        return str(snapshot[SavedFile(self.path)]) if self.restores else NOTHING

    def creation(self) -> tuple[Change, ...]:
        """Return it as missing, or nothing where it must be."""
        if self.absent:
            return ()
        new = "" if self.secret else shown(self.content)
        return (Change(Op.CREATE, "content", None, new, secret=self.secret),)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return what differs in existence, content, mode, owner and group."""
        status: FileStatus = snapshot[self.query]
        if self.absent:
            return self._removal(snapshot)
        new = self._secret_content() if self.secret else shown(self.content)
        if not status.exists:
            return self.creation()
        if status.type != "file":
            return (Change(Op.ATTENTION, "type", status.type, "file"),)
        changes = _permission_changes(self, status)
        if not self._content_differs(status):
            return changes
        size_and_hash = f"{status.size} bytes, sha256 {status.digest[:12]}"
        old = SecretStr(status.digest) if self.secret else shown(status.content, size_and_hash)
        return (Change(Op.UPDATE, "content", old, new, secret=self.secret), *changes)

    def _removal(self, snapshot: Snapshot) -> tuple[Change, ...]:
        status: FileStatus = snapshot[self.query]
        saved = self._saved(snapshot)
        if saved == FILE:
            return (Change(Op.UPDATE, "file", "as a run left it", "as it was before provision"),)
        if saved == RESTORED or not status.exists:
            return ()
        return (Change(Op.DELETE, "file", status.type, None),)

    def _content_differs(self, status: FileStatus) -> bool:
        if self.content is None:
            return False
        if self.secret:
            salted = salt_of(self.system, self.path).encode() + self.content
            return status.digest != digest_of(salted)
        return status.digest != _cached_digest(self.content)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how it is written, removed or given its permissions."""
        status: FileStatus = snapshot[self.query]
        if status.type == "link" and not self.absent:
            return self._link_refused()
        if status.type in ("directory", "other"):
            return self._type_refused(status.type)
        if self.absent:
            if self._saved(snapshot) == FILE:
                return [RestoreFile(self.path)]
            return [ops.RemoveFile(self.path, save=not self.restores)]
        if not status.exists or self._content_differs(status):
            return [ops.WriteFile(self.path, self.content or b"", self.mode, self.owner, self.group)]
        return _permission_operations(self, {change.path for change in _permission_changes(self, status)})

    def _secrets(self) -> tuple[SecretStr, ...]:
        return (self._secret_content(),) if self.secret and self.content else ()

    def _secret_content(self) -> SecretStr:
        return SecretStr((self.content or b"").decode("utf-8", "surrogateescape"))


@dataclass(frozen=True, slots=True)
class _Line(_Entry):
    """One line of a small file; the rest of it is left alone."""

    line: str

    def __post_init__(self) -> None:
        checked_path(self.path)
        checked_line(self.line, f"the line of {self.path}")

    def _key_name(self) -> str:
        return f"{self.path}: {self.line}"

    def queries(self) -> tuple[FileText, FileState]:
        """Return the queries: its text, and whether it is a file."""
        return FileText(self.path), FileState(self.path)


@dataclass(frozen=True, slots=True)
class FileLine(_Line):
    """One line that a small file must have; the rest of it is left alone.

    Args:
        path: absolute path; a missing file is made.
        line: the line, without its newline.
    """

    kind: ClassVar[str] = "file-line"

    def creation(self) -> tuple[Change, ...]:
        """Return the line as missing."""
        return (Change(Op.CREATE, "line", None, self.line),)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return the line as missing."""
        content, status = snapshot[FileText(self.path)], snapshot[FileState(self.path)]
        if status.type not in ("file", "absent"):
            return (Change(Op.ATTENTION, "type", status.type, "file"),)
        if content is not None and len(content) >= ops.INLINE_LIMIT:
            return (Change(Op.ATTENTION, "size", f"{len(content)} bytes or more", "below 64 KiB"),)
        if content is not None and ops.with_line(content, self.line) == content:
            return ()
        return (Change(Op.CREATE, "line", None, self.line),)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how the file is written with the line; mode and owner stay."""
        content, status = snapshot[FileText(self.path)], snapshot[FileState(self.path)]
        if status.type == "link":
            return self._link_refused()
        if status.type not in ("file", "absent") or (content and len(content) >= ops.INLINE_LIMIT):
            return self._type_refused("large or special file")
        return [ops.SetLine(self.path, self.line)]


@dataclass(frozen=True, slots=True)
class LineOff(_Line):
    """A line of a small file that must not count: it becomes a comment, and the rest of the file stays.

    Args:
        path: absolute path.
        line: the line, without blanks around it.
    """

    kind: ClassVar[str] = "line-off"

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return the line as one too many."""
        content = snapshot[FileText(self.path)]
        if content is None or ops_edit.without_line(content, self.line) == content:
            return ()
        return (Change(Op.DELETE, "line", self.line, None),)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return the one edit; mode and owner stay."""
        status = snapshot[FileState(self.path)]
        if status.type == "link":
            return self._link_refused()
        if status.type != "file" or len(snapshot[FileText(self.path)]) >= ops.INLINE_LIMIT:
            return self._type_refused("large or special file")
        return [ops_edit.CommentOutLine(self.path, self.line)]


@dataclass(frozen=True, slots=True)
class Directory(_Entry):
    """A folder with its permissions.

    Args:
        path: absolute path.
        mode: octal as typed; empty is unmanaged (0755 for a new one).
        owner: user name or number; empty is unmanaged.
        group: likewise.
    """

    kind: ClassVar[str] = "directory"

    mode: str = "0755"
    owner: str = ""
    group: str = ""

    def __post_init__(self) -> None:
        checked_path(self.path)
        checked_owner(self.owner)
        checked_owner(self.group)

    def queries(self) -> tuple[FileState, ...]:
        """Return the one query."""
        return (FileState(self.path),)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return what differs in existence, mode, owner and group."""
        status: FileStatus = snapshot[FileState(self.path)]
        if not status.exists:
            return (Change(Op.CREATE, "directory", None, self.mode or "0755"),)
        if status.type != "directory":
            return (Change(Op.ATTENTION, "type", status.type, "directory"),)
        return _permission_changes(self, status)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how it is made or given its permissions."""
        status: FileStatus = snapshot[FileState(self.path)]
        if status.exists and status.type != "directory":
            return self._type_refused(status.type)
        if status.exists:
            return _permission_operations(self, {change.path for change in _permission_changes(self, status)})
        return [
            ops.MakeDirectory(self.path, self.owner),
            *_permission_operations(self, {"mode", "owner", "group"}),
        ]


def _permission_changes(entry: File | Directory, status: FileStatus) -> tuple[Change, ...]:
    changes = []
    if entry.mode and not same_mode(status.mode, entry.mode):
        changes.append(Change(Op.UPDATE, "mode", status.mode, entry.mode))
    if entry.owner and entry.owner not in (status.owner, status.uid):
        changes.append(Change(Op.UPDATE, "owner", status.owner, entry.owner))
    if entry.group and entry.group not in (status.group, status.gid):
        changes.append(Change(Op.UPDATE, "group", status.group, entry.group))
    return tuple(changes)


def _permission_operations(entry: File | Directory, fields: Collection[str]) -> list[ops.Operation]:
    """Return what sets the declared ones of some fields; the mode comes last: chown(2) clears setuid."""
    operations: list[ops.Operation] = []
    owner, group = (entry.owner if "owner" in fields else ""), (entry.group if "group" in fields else "")
    if owner or group:
        operations.append(ops.SetOwner(entry.path, owner, group))
    if entry.mode and fields:
        operations.append(ops.SetMode(entry.path, entry.mode))
    return operations


def authorized_keys(
    system: str, user: str, keys: tuple[str, ...], *, home: str = "", source: Source | None = None
) -> tuple[Directory, File]:
    """Return the managed list of a user's public keys: nothing else may log in by key.

    Args:
        system: `vm-1/ssh`.
        user: login.
        keys: public keys as in authorized_keys(5); the caller includes the key that provision itself uses.
        home: home folder; empty is /root or /home/USER.
        source: inventory line.
    """
    home = home or ("/root" if user == "root" else f"/home/{user}")
    content = "".join(f"{key.strip()}\n" for key in dict.fromkeys(keys)).encode()
    return (
        Directory(system, f"{home}/.ssh", "0700", user, source=source),
        File(system, f"{home}/.ssh/authorized_keys", content, "0600", user, source=source),
    )
