"""Kernel parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.query import Frame
from provision.contracts.remedy import Impossible
from provision.contracts.snapshot import Snapshot
from provision.hosts.operations import basic as ops
from provision.hosts.operations import notes
from provision.hosts.queries.boot_sysctl import BootSetting, BootSysctl
from provision.hosts.resources.base import (
    Composite,
    Live,
    Operations,
    Part,
    checked_line,
    lines_of,
    no_answer,
)
from provision.hosts.resources.file import File
from provision.inventory.grammar import SYSCTL_KEY

_KEY = re.compile(SYSCTL_KEY)
_MISSING = "no such parameter"


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
        files = ops.words(dict.fromkeys(ops.sysctl_file(query.key) for query in queries))
        # No `read`: it takes single bytes, and the kernel then answers with the first value of a list only.
        return (
            f"set -- {files}\n"
            "grep -s '' /dev/null \"$@\" | sed 's/^/v|/' || :\n"
            'for f do if [ ! -e "$f" ]; then printf \'a|%s\\n\' "$f"; fi; done'
        )

    def parse(self, frame: Frame, queries: Sequence[SysctlValue]) -> Mapping[SysctlValue, object]:
        """Return the value for each parameter."""
        values: dict[str, object] = {}
        for line in lines_of(frame):
            tag, _, rest = line.partition("|")
            path, colon, value = rest.partition(":")
            if tag == "a":
                values[rest] = None
            elif tag == "v" and colon:
                values[path] = " ".join(value.split())
        return {
            query: values.get(ops.sysctl_file(query.key), no_answer(frame, query.key)) for query in queries
        }


@dataclass(frozen=True, slots=True)
class Sysctl(Composite):
    """A kernel parameter, now and at boot.

    Args:
        name: dotted name.
        value: its value; None removes our file and leaves the live value alone.
    """

    kind: ClassVar[str] = "sysctl"

    name: str
    value: str | None

    def __post_init__(self) -> None:
        if _KEY.fullmatch(self.name) is None:
            raise ValueError(f"{self.name!r} is not the name of a kernel parameter")
        if self.value is not None:
            checked_line(self.value, f"the value of {self.name}")

    def _key_name(self) -> str:
        return self.name

    @property
    def file(self) -> File:
        """The file that sets it at boot; see sysctl.d(5)."""
        path = f"/etc/sysctl.d/90-provision-{self.name.replace('/', '-')}.conf"
        content = None if self.value is None else f"{self.name} = {self.value}\n"
        return File.of_text(self.system, path, content, source=self.source)

    def parts(self) -> Mapping[str, Part]:
        """Return the file, what wins at the next boot, and the live value."""
        if self.value is None:
            return {"at boot": self.file}
        # A module of the same step may bring a parameter that is not there yet: only the operation knows.
        live = Live(
            SysctlValue(self.name),
            lambda value: _MISSING if value is None else value,
            " ".join(self.value.split()),
            (ops.SetSysctl(self.name, self.value),),
        )
        return {"at boot": self.file, "next boot": _NextBoot(self), "value": live}

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return what corrects the parts; the value of before the first change is noted."""
        operations = Composite.operations(self, snapshot)
        if self.value is None or isinstance(operations, Impossible):
            return operations
        value = snapshot[SysctlValue(self.name)]
        if not isinstance(value, str) or value == " ".join(self.value.split()):
            return operations
        return [notes.Note(notes.SYSCTL, self.name, value), *operations]


@dataclass(frozen=True, slots=True)
class _NextBoot:
    """No file that is read after ours sets another value."""

    resource: Sysctl

    def queries(self) -> tuple[BootSysctl, ...]:
        return (BootSysctl(self.resource.name),)

    def _overriding(self, snapshot: Snapshot) -> BootSetting | None:
        """Return the setting that wins over ours: between files of one name, ours counts (in /etc)."""
        own = self.resource.file.path.rpartition("/")[2]
        later = [setting for setting in snapshot[BootSysctl(self.resource.name)] if setting.place > own]
        desired = " ".join((self.resource.value or "").split())
        return later[-1] if later and later[-1].value != desired else None

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        setting = self._overriding(snapshot)
        if setting is None:
            return ()
        return (Change(Op.ATTENTION, "value", f"{setting.value} by {setting.file}", self.resource.value),)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        setting = self._overriding(snapshot)
        if setting is None:
            return ()
        name, own = self.resource.name, self.resource.file.path
        return self.resource.refusal(
            "SYSCTL_OVERRIDDEN",
            f"{setting.file} sets {name} = {setting.value} at boot, after {own}",
            untouched=f"{name} was not changed",
            remedy=f"remove {name} from {setting.file}, or declare the value that it sets",
        )
