"""Kernel parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from provision.contracts.change import Change, Key, Op
from provision.contracts.effect import Effect
from provision.contracts.query import Frame, Unknown
from provision.contracts.remedy import Fix, Remedy
from provision.contracts.snapshot import Snapshot
from provision.hosts.operations import basic as ops
from provision.hosts.resources.base import cannot_tell, unknown, why
from provision.hosts.resources.file import File
from provision.values.diagnostics import Source

_KEY = re.compile(r"[a-z0-9_-]+(?:\.[A-Za-z0-9_/@-]+)+")


@dataclass(frozen=True, slots=True)
class SysctlValue:
    """The live value of a kernel parameter (blanks as one space); None when there is no such parameter."""

    kind: ClassVar[str] = "sysctl"
    key: str


class SysctlValueKind:
    """One grep over the files of /proc/sys."""

    query = SysctlValue

    def script(self, queries: Sequence[SysctlValue]) -> str:
        """Return the fragment."""
        files = ops.words(dict.fromkeys(ops.sysctl_file(each.key) for each in queries))
        # No `read`: it takes single bytes, and the kernel then answers with the first value of a list only.
        return (
            f"set -- {files}\n"
            "grep -s '' /dev/null \"$@\" | sed 's/^/v|/' || :\n"
            'for f do if [ ! -e "$f" ]; then printf \'a|%s\\n\' "$f"; fi; done'
        )

    def parse(self, frame: Frame, queries: Sequence[SysctlValue]) -> Mapping[SysctlValue, object]:
        """Return the value for each parameter."""
        seen: dict[str, object] = {}
        lines = [] if frame.dropped else frame.stdout.decode("utf-8", "replace").split("\n")[:-1]
        for line in lines:
            tag, _, rest = line.partition("|")
            if tag == "a":
                seen[rest] = None
            elif tag == "v" and ":" in rest:
                path, _, value = rest.partition(":")
                seen[path] = " ".join(value.split())
        return {each: seen.get(ops.sysctl_file(each.key), why(frame, each.key)) for each in queries}


@dataclass(frozen=True, slots=True)
class Sysctl:
    """A kernel parameter, now and at boot.

    Args:
        system: `vm-1/ssh`.
        name: dotted name.
        value: its value; None removes our file and leaves the live value alone.
        effects: what must happen after a change.
        source: inventory line.
    """

    system: str
    name: str
    value: str | None
    effects: tuple[Effect, ...] = ()
    source: Source | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if _KEY.fullmatch(self.name) is None:
            raise ValueError(f"{self.name!r} is no name of a kernel parameter")

    @property
    def key(self) -> Key:
        """Identity."""
        return Key(self.system, "sysctl", self.name)

    @property
    def file(self) -> File:
        """The file that sets it at boot; see sysctl.d(5)."""
        path = f"/etc/sysctl.d/90-provision-{self.name.replace('/', '-')}.conf"
        content = None if self.value is None else f"{self.name} = {self.value}\n".encode()
        return File(self.system, path, content, absent=self.value is None, source=self.source)

    def queries(self) -> tuple[Any, ...]:
        """Return the questions: the live value, the file."""
        return SysctlValue(self.name), self.file.query

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Return what differs in the live value and at boot."""
        at_boot = tuple(_renamed(each) for each in self.file.changes(seen))
        if self.value is None:
            return at_boot
        live = seen[SysctlValue(self.name)]
        if isinstance(live, Unknown):
            return (unknown("value", live, self.value), *at_boot)
        if live is None:
            # A module of the same step may bring it: only the fix can tell.
            return (Change(Op.UPDATE, "value", "no such parameter", self.value), *at_boot)
        if live == " ".join(self.value.split()):
            return at_boot
        return (Change(Op.UPDATE, "value", live, self.value), *at_boot)

    def fix(self, seen: Snapshot) -> Remedy:
        """Return how both are set."""
        live = seen[SysctlValue(self.name)]
        if isinstance(live, Unknown):
            return cannot_tell(self.key, live.reason, self.source)
        done: list[ops.Operation] = []
        if self.file.changes(seen):
            repair = self.file.fix(seen)
            if not isinstance(repair, Fix):
                return repair
            done += [each for each in repair.ops if isinstance(each, ops.Operation)]
        if self.value is not None and live != " ".join(self.value.split()):
            done.append(ops.SetSysctl(self.name, self.value))
        return ops.fix(done, self.effects)


def _renamed(change: Change) -> Change:
    return Change(change.op, f"at boot: {change.path}", change.old, change.new)
