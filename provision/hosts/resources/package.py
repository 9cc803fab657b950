"""Debian packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from provision.contracts.change import Change, Key, Op
from provision.contracts.effect import Effect
from provision.contracts.query import Frame, Unknown
from provision.contracts.remedy import Fix, Impossible
from provision.contracts.snapshot import Snapshot
from provision.hosts.operations import basic as ops
from provision.hosts.operations.basic import words
from provision.hosts.resources.base import cannot_tell, checked_name, unknown, why
from provision.values.diagnostics import Source


@dataclass(frozen=True, slots=True)
class PackageState:
    """Whether a package is installed."""

    kind: ClassVar[str] = "package"
    name: str


@dataclass(frozen=True, slots=True)
class PackageStatus:
    """What dpkg knows of a package.

    Args:
        version: installed version; empty when it is not (or only half) installed.
        held: whether it is kept from upgrades.
    """

    version: str = ""
    held: bool = False

    @property
    def installed(self) -> bool:
        """Whether it is wholly installed."""
        return bool(self.version)


class PackageStateKind:
    """One dpkg-query for all names; the status format is that of dpkg-query(1)."""

    query = PackageState

    def script(self, queries: Sequence[PackageState]) -> str:
        """Return the fragment."""
        names = words(dict.fromkeys(each.name for each in queries))
        return (
            "if command -v dpkg-query >/dev/null 2>&1; then\n"
            "  dpkg-query -W -f='p|${Package}|${Architecture}|${db:Status-Abbrev}|${Version}\\n' -- "
            f"{names} 2>/dev/null || :\n"
            "  printf 'done\\n'\n"
            "else printf 'there is no dpkg-query: only hosts with apt are managed\\n' >&2; fi"
        )

    def parse(self, frame: Frame, queries: Sequence[PackageState]) -> Mapping[PackageState, object]:
        """Return a PackageStatus for each name."""
        found: dict[str, PackageStatus] = {}
        lines = frame.stdout.decode("utf-8", "replace").split("\n")
        if "done" not in lines[-3:] or frame.dropped:
            return dict.fromkeys(queries, why(frame, "packages"))
        for line in lines:
            fields = line.split("|")
            if len(fields) != 5 or fields[0] != "p" or len(fields[3]) < 2:  # noqa: PLR2004 - the format's fields
                continue
            _, name, architecture, status, version = fields
            # Second letter: i = installed, t = triggers pending, W = triggers awaited; all three are usable.
            usable = status[1] in "itW"
            answer = PackageStatus(version if usable else "", held=status[0] == "h")
            for each in (name, f"{name}:{architecture}"):
                if not found.get(each, PackageStatus()).installed:
                    found[each] = answer
        return {each: found.get(each.name, PackageStatus()) for each in queries}


@dataclass(frozen=True, slots=True)
class Package:
    """Packages that are installed together, or that must not be installed.

    Args:
        system: `vm-1/ssh`.
        names: package names.
        absent: none of them may be installed.
        hold: keep from upgrades; None is unmanaged.
        effects: what must happen after a change.
        source: inventory line.
    """

    system: str
    names: tuple[str, ...]
    absent: bool = False
    hold: bool | None = None
    effects: tuple[Effect, ...] = ()
    source: Source | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name in self.names:
            checked_name(name)

    @property
    def key(self) -> Key:
        """Identity."""
        return Key(self.system, "package", " ".join(self.names))

    def queries(self) -> tuple[PackageState, ...]:
        """Return one question a name."""
        return tuple(PackageState(name) for name in self.names)

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Return what is missing, has another hold, or must go; the path is the package's name."""
        found: list[Change] = []
        for name in self.names:
            status = seen[PackageState(name)]
            if isinstance(status, Unknown):
                found.append(unknown(name, status, "absent" if self.absent else "installed"))
            elif self.absent:
                if status.installed:
                    found.append(Change(Op.DELETE, name, status.version, None))
            elif not status.installed:
                found.append(Change(Op.CREATE, name, None, "installed"))
            if not isinstance(status, Unknown) and not self.absent and self.hold not in (None, status.held):
                found.append(Change(Op.UPDATE, f"{name}.hold", _held(status.held), _held(self.hold)))
        return tuple(found)

    def fix(self, seen: Snapshot) -> Fix | Impossible:
        """Return how all of them are installed or removed in one go."""
        states = {name: seen[PackageState(name)] for name in self.names}
        for answer in states.values():
            if isinstance(answer, Unknown):
                return cannot_tell(self.key, answer.reason, self.source)
        if self.absent:
            names = tuple(name for name, status in states.items() if status.installed)
            return ops.fix([ops.RemovePackages(names)], self.effects, timeout=1800)
        done: list[ops.Operation] = []
        wanted = tuple(name for name, status in states.items() if not status.installed)
        if wanted:
            done.append(ops.InstallPackages(wanted))
        if self.hold is not None:
            done.append(ops.HoldPackages(self.names, self.hold))
        return ops.fix(done, self.effects, timeout=1800)


def _held(held: bool | None) -> str:
    return "held" if held else "not held"
