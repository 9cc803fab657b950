"""Files, lines in files, folders: resources."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from pydantic import SecretStr

from provision.contracts.change import Change, Key, Op
from provision.contracts.effect import Effect
from provision.contracts.query import Unknown
from provision.contracts.remedy import Fix, Impossible, Remedy
from provision.contracts.snapshot import Snapshot
from provision.hosts.operations import basic as ops
from provision.hosts.queries.file import FileState, FileStatus, FileText, digest_of, salt_of
from provision.hosts.resources.base import cannot_tell, checked_path, unknown
from provision.values.diagnostics import Diagnostic, Source

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


def _attributes(status: FileStatus, mode: str, owner: str, group: str) -> Iterator[tuple[str, str, str]]:
    if mode and not same_mode(status.mode, mode):
        yield "mode", status.mode, mode
    if owner and owner not in (status.owner, status.uid):
        yield "owner", status.owner, owner
    if group and group not in (status.group, status.gid):
        yield "group", status.group, group


def _repairs(path: str, found: list[str], mode: str, owner: str, group: str) -> list[ops.Operation]:
    """Return how attributes are mended; the mode comes last, because chown clears setuid."""
    done: list[ops.Operation] = []
    if "owner" in found or "group" in found:
        done.append(ops.SetOwner(path, owner if "owner" in found else "", group if "group" in found else ""))
    if mode and found:
        done.append(ops.SetMode(path, mode))
    return done


def link_refused(key: Key, path: str, source: Source | None) -> Impossible:
    """Return the diagnostic of a symbolic link where a file is wanted."""
    return Impossible(
        Diagnostic(
            "FILE_IS_LINK",
            f"{path} is a symbolic link, and links are never written through",
            subject=key.system,
            source=source,
            untouched=f"{path} and its target were left as they are",
            remedy="remove the link, or declare the file that it points to",
        )
    )


def _wrong_type(key: Key, path: str, found: str, source: Source | None) -> Impossible:
    return Impossible(
        Diagnostic(
            "FILE_TYPE_WRONG",
            f"{path} is a {found} and is never replaced",
            subject=key.system,
            source=source,
            untouched=f"{path} was left as it is",
            remedy="move it away by hand, then run again",
        )
    )


@dataclass(frozen=True, slots=True)
class File:
    """A whole file, or that there is none.

    Args:
        system: `pve/ssh`.
        path: absolute path on the host.
        content: its bytes; None leaves the content of an existing file alone and makes a missing one empty.
        mode: octal as typed (`0644`); empty is unmanaged.
        owner: user name or number; empty is unmanaged (root for a new file).
        group: likewise.
        absent: the file must not be there.
        secret: the content is compared by a salted hash, and never shown or fetched.
        effects: what must happen after a change.
        source: inventory line.
    """

    system: str
    path: str
    content: bytes | None = field(default=None, repr=False)
    mode: str = "0644"
    owner: str = ""
    group: str = ""
    absent: bool = False
    secret: bool = False
    effects: tuple[Effect, ...] = ()
    source: Source | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        checked_path(self.path)

    @property
    def key(self) -> Key:
        """Identity."""
        return Key(self.system, "file", self.path)

    @property
    def query(self) -> FileState:
        """The question about it."""
        if self.absent or self.content is None:
            return FileState(self.path)
        if self.secret:
            return FileState(self.path, salt=salt_of(self.system, self.path))
        return FileState(self.path, want=_cached_digest(self.content))

    def queries(self) -> tuple[FileState, ...]:
        """Return the one question."""
        return (self.query,)

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Return what differs in existence, content, mode, owner and group."""
        status = seen[self.query]
        if isinstance(status, Unknown):
            return (unknown("content", status, "absent" if self.absent else self._new()),)
        if self.absent:
            return (Change(Op.DELETE, "file", status.type, None),) if status.exists else ()
        return self._differences(status)

    def _differences(self, status: FileStatus) -> tuple[Change, ...]:
        if not status.exists:
            return (Change(Op.CREATE, "content", None, self._new(), secret=self.secret),)
        if status.type != "file":
            return (Change(Op.ATTENTION, "type", status.type, "file"),)
        found = [
            Change(Op.UPDATE, path, old, new)
            for path, old, new in _attributes(status, self.mode, self.owner, self.group)
        ]
        if self._content_differs(status):
            old = (
                ""
                if self.secret
                else shown(status.content, f"{status.size} bytes, sha256 {status.digest[:12]}")
            )
            found.insert(0, Change(Op.UPDATE, "content", old, self._new(), secret=self.secret))
        return tuple(found)

    def _new(self) -> str:
        return "" if self.secret else shown(self.content)

    def _content_differs(self, status: FileStatus) -> bool:
        if self.content is None:
            return False
        if self.secret:
            salted = salt_of(self.system, self.path).encode() + self.content
            return status.digest != digest_of(salted)
        return status.digest != self.query.want

    def fix(self, seen: Snapshot) -> Remedy:
        """Return how it is written, removed or given its permissions."""
        status = seen[self.query]
        if isinstance(status, Unknown):
            return cannot_tell(self.key, status.reason, self.source)
        if status.type == "link" and not self.absent:
            return link_refused(self.key, self.path, self.source)
        if status.type in ("directory", "other"):
            return _wrong_type(self.key, self.path, status.type, self.source)
        if self.absent:
            return ops.fix([ops.RemoveFile(self.path)], self.effects)
        if not status.exists or self._content_differs(status):
            write = ops.WriteFile(self.path, self.content or b"", self.mode, self.owner, self.group)
            return ops.fix([write], self.effects, secrets=self._secrets())
        found = [path for path, _, _ in _attributes(status, self.mode, self.owner, self.group)]
        return ops.fix(_repairs(self.path, found, self.mode, self.owner, self.group), self.effects)

    def _secrets(self) -> tuple[SecretStr, ...]:
        if not self.secret or not self.content:
            return ()
        return (SecretStr(self.content.decode("utf-8", "replace")),)


@dataclass(frozen=True, slots=True)
class FileLine:
    """One line that a small file must have; the rest of it is left alone.

    Args:
        system: `vm-1/ssh`.
        path: absolute path; a missing file is made.
        line: the line, without its newline.
        effects: what must happen after a change.
        source: inventory line.
    """

    system: str
    path: str
    line: str
    effects: tuple[Effect, ...] = ()
    source: Source | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        checked_path(self.path)
        if "\n" in self.line:
            raise ValueError(f"{self.path}: a line holds no newline")

    @property
    def key(self) -> Key:
        """Identity: the path and the line."""
        return Key(self.system, "file-line", f"{self.path}: {self.line}")

    def queries(self) -> tuple[FileText, FileState]:
        """Return the questions: its text, and whether it is a file."""
        return FileText(self.path), FileState(self.path)

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Return the line as missing."""
        content, status = seen[FileText(self.path)], seen[FileState(self.path)]
        for answer in (content, status):
            if isinstance(answer, Unknown):
                return (unknown("line", answer, self.line),)
        if status.type not in ("file", "absent"):
            return (Change(Op.ATTENTION, "type", status.type, "file"),)
        if content is not None and len(content) >= ops.INLINE_LIMIT:
            return (Change(Op.ATTENTION, "size", f"{len(content)} bytes or more", "below 64 KiB"),)
        if content is not None and ops.with_line(content, self.line) == content:
            return ()
        return (Change(Op.CREATE, "line", None, self.line),)

    def fix(self, seen: Snapshot) -> Remedy:
        """Return how the file is written with the line; mode and owner stay."""
        content, status = seen[FileText(self.path)], seen[FileState(self.path)]
        for answer in (content, status):
            if isinstance(answer, Unknown):
                return cannot_tell(self.key, answer.reason, self.source)
        if status.type == "link":
            return link_refused(self.key, self.path, self.source)
        if status.type not in ("file", "absent") or (content and len(content) >= ops.INLINE_LIMIT):
            return _wrong_type(self.key, self.path, "large or special file", self.source)
        return ops.fix([ops.SetLine(self.path, self.line)], self.effects)


@dataclass(frozen=True, slots=True)
class Directory:
    """A folder with its permissions.

    Args:
        system: `vm-1/ssh`.
        path: absolute path.
        mode: octal as typed; empty is unmanaged (0755 for a new one).
        owner: user name or number; empty is unmanaged.
        group: likewise.
        effects: what must happen after a change.
        source: inventory line.
    """

    system: str
    path: str
    mode: str = "0755"
    owner: str = ""
    group: str = ""
    effects: tuple[Effect, ...] = ()
    source: Source | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        checked_path(self.path)

    @property
    def key(self) -> Key:
        """Identity."""
        return Key(self.system, "directory", self.path)

    def queries(self) -> tuple[FileState, ...]:
        """Return the one question."""
        return (FileState(self.path),)

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Return what differs in existence, mode, owner and group."""
        status = seen[FileState(self.path)]
        if isinstance(status, Unknown):
            return (unknown("directory", status, self.mode or "0755"),)
        if not status.exists:
            return (Change(Op.CREATE, "directory", None, self.mode or "0755"),)
        if status.type != "directory":
            return (Change(Op.ATTENTION, "type", status.type, "directory"),)
        found = _attributes(status, self.mode, self.owner, self.group)
        return tuple(Change(Op.UPDATE, path, old, new) for path, old, new in found)

    def fix(self, seen: Snapshot) -> Fix | Impossible:
        """Return how it is made or given its permissions."""
        status = seen[FileState(self.path)]
        if isinstance(status, Unknown):
            return cannot_tell(self.key, status.reason, self.source)
        if status.exists and status.type != "directory":
            return _wrong_type(self.key, self.path, status.type, self.source)
        done: list[ops.Operation] = []
        if not status.exists:
            done.append(ops.MakeDirectory(self.path))
            found = ["owner"] * bool(self.owner) + ["group"] * bool(self.group)
            done += _repairs(self.path, found, "", self.owner, self.group)
            if self.mode:
                done.append(ops.SetMode(self.path, self.mode))
        else:
            found = [path for path, _, _ in _attributes(status, self.mode, self.owner, self.group)]
            done += _repairs(self.path, found, self.mode, self.owner, self.group)
        return ops.fix(done, self.effects)


def authorized_keys(
    system: str,
    user: str,
    keys: tuple[str, ...],
    *,
    home: str = "",
    source: Source | None = None,
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
