"""A network filesystem that is mounted now and at boot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.remedy import Impossible
from provision.contracts.snapshot import Snapshot
from provision.hosts.operations import basic as ops
from provision.hosts.queries.file import FileText
from provision.hosts.resources.base import HostResource, Operations, checked_path

FSTAB = FileText("/etc/fstab")
MOUNTS = FileText("/proc/self/mounts")
FSTAB_FIELDS = 6


# Comments and all other lines stay; the first line of the place becomes ours, further ones go.
_AWK = """BEGIN { line = ENVIRON["PROVISION_LINE"]; path = ENVIRON["PROVISION_MOUNT"] }
$1 !~ /^#/ && $2 == path { if (!done && line != "") print line; done = 1; next }
{ print }
END { if (!done && line != "") print line }"""


@dataclass(frozen=True, slots=True)
class SetFstabLine:
    """Make fstab(5) have one line for a place.

    Args:
        path: where is mounted.
        line: the line, without its newline; empty for none.
    """

    path: str
    line: str

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        variables = f"PROVISION_LINE={ops.quote(self.line)} PROVISION_MOUNT={ops.quote(self.path)}"
        return ops.rewritten("/etc/fstab", f"{variables} awk {ops.quote(_AWK)}")


def with_fstab_line(content: bytes, path: str, line: str) -> bytes:
    """Return the content of fstab(5) as SetFstabLine changes it."""
    kept: list[str] = []
    placed = False
    for present in content.decode("utf-8", "surrogateescape").splitlines():
        fields = present.split()
        if len(fields) < 2 or fields[0].startswith("#") or fields[1] != path:  # noqa: PLR2004 - source and place
            kept.append(present)
        elif not placed:
            kept += [line] if line else []
            placed = True
    if line and not placed:
        kept.append(line)
    return "".join(f"{row}\n" for row in kept).encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class MountPath:
    """Mount what fstab(5) says of a path."""

    path: str

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        path = ops.quote(self.path)
        # Field 2 of /proc/self/mounts is the place; util-linux's mountpoint(1) is not everywhere.
        there = f"awk -v p={path} '$2 == p {{ f = 1 }} END {{ exit !f }}' /proc/self/mounts"
        return f"if ! {there}; then mount -- {path}; fi"


@dataclass(frozen=True, slots=True)
class NfsMount(HostResource):
    """An NFS export at a path, by a line of fstab(5).

    Args:
        path: where.
        server: `host:/export`.
        options: mount options.
        absent: no line of it is left for the next boot; what is mounted stays until then.
    """

    kind: ClassVar[str] = "nfs-mount"

    path: str
    server: str
    options: str
    absent: bool = False

    def __post_init__(self) -> None:
        checked_path(self.path)
        if any(character.isspace() for character in f"{self.path}{self.server}{self.options}"):
            raise ValueError(f"{self.path}: fstab(5) takes no blanks")

    def _key_name(self) -> str:
        return self.path

    @property
    def line(self) -> str:
        """The line of fstab(5)."""
        return f"{self.server} {self.path} nfs {self.options} 0 0"

    def queries(self) -> tuple[FileText, ...]:
        """Return the queries: what is mounted at boot, and now."""
        return FSTAB, MOUNTS

    def creation(self) -> tuple[Change, ...]:
        """Return it as missing."""
        boot = Change(Op.CREATE, "at boot", None, self.line)
        return boot, Change(Op.CREATE, "mounted", None, self.server)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return what differs at boot and now."""
        rows = _rows(snapshot[FSTAB])
        at_boot = next((" ".join(row) for row in rows if row[1] == self.path), None)
        if self.absent:
            lines = [" ".join(row) for row in rows if row[1] == self.path]
            # Another line of the place is somebody's own, and means that ours does not count alone.
            return (Change(Op.DELETE, "at boot", self.line, None),) if lines == [self.line] else ()
        mounted = self._mounted(snapshot)
        changes = []
        if at_boot != self.line:
            changes.append(Change(Op.UPDATE if at_boot else Op.CREATE, "at boot", at_boot, self.line))
        if mounted != self.server:
            changes.append(
                Change(Op.CREATE if mounted is None else Op.ATTENTION, "mounted", mounted, self.server)
            )
        return tuple(changes)

    def _mounted(self, snapshot: Snapshot) -> str | None:
        """Return what is mounted there now: the last one counts."""
        sources = [row[0] for row in _rows(snapshot[MOUNTS]) if row[1] == self.path]
        return sources[-1] if sources else None

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how it comes; what others mounted there is left alone."""
        mounted = self._mounted(snapshot)
        if self.absent:
            return [SetFstabLine(self.path, "")]
        others = [row for row in _rows(snapshot[FSTAB]) if row[1] == self.path and row[0] != self.server]
        if mounted not in (None, self.server) or others:
            return self._taken(mounted or others[0][0])
        return [
            ops.MakeDirectory(self.path),
            SetFstabLine(self.path, self.line),
            MountPath(self.path),
        ]

    def _taken(self, source: str) -> Impossible:
        return self._refused(
            "MOUNT_TAKEN",
            f"{self.path} has another filesystem: {source}",
            untouched="nothing was mounted or unmounted",
            remedy="declare `manage: false` for this storage, or unmount it and remove its line in fstab",
        )


def _rows(content: bytes | None) -> list[list[str]]:
    """Return the lines of a table like fstab(5), without comments."""
    lines = (content or b"").decode("utf-8", "replace").splitlines()
    rows = (line.split() for line in lines if not line.lstrip().startswith("#"))
    return [row for row in rows if len(row) >= FSTAB_FIELDS]
