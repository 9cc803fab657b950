"""Debian packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.query import Frame
from provision.contracts.snapshot import Snapshot
from provision.hosts.operations import basic as ops
from provision.hosts.operations import notes
from provision.hosts.resources.base import HostResource, Operations, checked_name, no_answer


@dataclass(frozen=True, slots=True)
class PackageState:
    """Whether a package is installed."""

    kind: ClassVar[str] = "package"
    name: str


@dataclass(frozen=True, slots=True)
class PackageStatus:
    """The state of a package, from dpkg.

    Args:
        version: installed version; empty when it is not (or only half) installed.
        held: whether it is kept from upgrades.
        provider: installed package that provides this name, where no package of the name itself is.
    """

    version: str = ""
    held: bool = False
    provider: str = ""

    @property
    def installed(self) -> bool:
        """Whether a package of this very name is wholly installed."""
        return bool(self.version)

    @property
    def usable(self) -> bool:
        """Whether it, or a package that provides it, is installed."""
        return bool(self.version or self.provider)


_MISSING = """BEGIN { n = split(ENVIRON["PROVISION_KNOWN"], rows, "\\n")
for (i = 1; i <= n; i++) { split(rows[i], f, "|")
if (f[4] ~ /^.[itW]/) { there[f[2]]; there[f[2] ":" f[3]] } }
n = split(ENVIRON["PROVISION_NAMES"], names, " ")
for (i = 1; i <= n; i++) if (!(names[i] in there)) exit 0
exit 1 }"""
"""Succeeds if a name is not installed."""

_PROVIDED = """BEGIN { n = split(ENVIRON["PROVISION_NAMES"], a, " "); for (i = 1; i <= n; i++) wanted[a[i]] }
$2 ~ /^.[itW]/ { n = split($3, a, /, */)
for (i = 1; i <= n; i++) { sub(/[ (].*/, "", a[i]); if (a[i] in wanted) print "v|" a[i] "|" $1 "|" $2 } }"""
"""Prints who provides the names, of lines with package, status and what it provides."""


class PackageStateKind:
    """One dpkg-query for all names, another for what provides the missing ones; see dpkg-query(1).

    Some names belong to no package of their own: `awk`, `default-mta`, `pve-headers-6.14.8-2-pve`.
    """

    query = PackageState

    def script(self, queries: Sequence[PackageState]) -> str:
        """Return the fragment."""
        names = tuple(dict.fromkeys(query.name for query in queries))
        known = "p|${Package}|${Architecture}|${db:Status-Abbrev}|${Version}\\n"
        provided = "${Package}|${db:Status-Abbrev}|${Provides}\\n"
        return (
            "if command -v dpkg-query >/dev/null 2>&1; then\n"
            f"  known=$(dpkg-query -W -f='{known}' -- {ops.words(names)} 2>/dev/null || :)\n"
            "  printf '%s\\n' \"$known\"\n"
            f"  PROVISION_NAMES={ops.quote(' '.join(names))} PROVISION_KNOWN=$known\n"
            "  export PROVISION_NAMES PROVISION_KNOWN\n"
            f"  if awk {ops.quote(_MISSING)} </dev/null; then\n"
            f"    {{ dpkg-query -W -f='{provided}' 2>/dev/null || :; }} | awk -F'|' {ops.quote(_PROVIDED)}\n"
            "  fi\n"
            "  printf 'done\\n'\n"
            "else printf 'dpkg-query is not installed: only hosts with apt are managed\\n' >&2; fi"
        )

    def parse(self, frame: Frame, queries: Sequence[PackageState]) -> Mapping[PackageState, object]:
        """Return a PackageStatus for each name."""
        statuses: dict[str, PackageStatus] = {}
        providers: dict[str, PackageStatus] = {}
        lines = frame.stdout.decode("utf-8", "replace").split("\n")
        if "done" not in lines[-3:] or frame.dropped:
            return dict.fromkeys(queries, no_answer(frame, "packages"))
        for line in lines:
            fields = line.split("|")
            if len(fields) == 4 and fields[0] == "v":  # noqa: PLR2004 - name, provider, status
                held = fields[3].startswith("h")
                providers.setdefault(fields[1], PackageStatus(held=held, provider=fields[2]))
            if len(fields) != 5 or fields[0] != "p" or len(fields[3]) < 2:  # noqa: PLR2004 - the format's fields
                continue
            _, name, architecture, status, version = fields
            # Second letter: i = installed, t = triggers pending, W = triggers awaited; all three are usable.
            usable = status[1] in "itW"
            answer = PackageStatus(version if usable else "", held=status[0] == "h")
            for full_name in (name, f"{name}:{architecture}"):
                if not statuses.get(full_name, PackageStatus()).installed:
                    statuses[full_name] = answer
        return {query: _status(query.name, statuses, providers) for query in queries}


def _status(
    name: str, statuses: Mapping[str, PackageStatus], providers: Mapping[str, PackageStatus]
) -> PackageStatus:
    own = statuses.get(name, PackageStatus())
    return own if own.installed else providers.get(name, own)


@dataclass(frozen=True, slots=True)
class Package(HostResource):
    """Packages that are installed together, or that must not be installed.

    Args:
        names: package names.
        absent: none of them may be installed.
        hold: keep from upgrades; None is unmanaged.
    """

    kind: ClassVar[str] = "package"

    names: tuple[str, ...]
    absent: bool = False
    hold: bool | None = None

    def __post_init__(self) -> None:
        for name in self.names:
            checked_name(name)

    def _key_name(self) -> str:
        return " ".join(self.names)

    def queries(self) -> tuple[PackageState, ...]:
        """Return one query a name."""
        return tuple(PackageState(name) for name in self.names)

    def creation(self) -> tuple[Change, ...]:
        """Return all packages as missing, or nothing where they must be."""
        if self.absent:
            return ()
        return tuple(Change(Op.CREATE, name, None, "installed") for name in self.names)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return what is missing, has another hold, or must go; the path is the package's name."""
        changes: list[Change] = []
        for query in self.queries():
            name, status = query.name, snapshot[query]
            if self.absent:
                changes += [Change(Op.DELETE, name, status.version, None)] if status.installed else []
                continue
            if not status.usable:
                changes.append(Change(Op.CREATE, name, None, "installed"))
            if self.hold not in (None, status.held):
                changes.append(Change(Op.UPDATE, f"{name}.hold", _held(status.held), _held(self.hold)))
        return tuple(changes)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how all of them are installed or removed in one go."""
        statuses = {query.name: snapshot[query] for query in self.queries()}
        if self.absent:
            gone = tuple(name for name, status in statuses.items() if status.installed)
            noted = (notes.Note(notes.PACKAGE, name, statuses[name].version) for name in gone)
            return [*noted, ops.RemovePackages(gone)]
        missing = tuple(name for name, status in statuses.items() if not status.usable)
        operations: list[ops.Operation] = [notes.Note(notes.PACKAGE, name, notes.MISSING) for name in missing]
        operations += [ops.InstallPackages(missing)] if missing else []
        if self.hold is not None:
            # apt-mark(8) knows real packages alone
            real = tuple(status.provider or name for name, status in statuses.items())
            operations += [
                notes.Note(notes.HOLD, status.provider or name, _held(status.held))
                for name, status in statuses.items()
                if status.usable and status.held is not self.hold
            ]
            operations.append(ops.HoldPackages(real, self.hold))
        return operations

    def _seconds(self) -> float:
        return 1800.0


def _held(held: bool | None) -> str:
    return notes.HELD if held else notes.NOT_HELD
