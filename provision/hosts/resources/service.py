"""systemd units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.query import Frame, Unknown
from provision.contracts.snapshot import Snapshot
from provision.hosts.names import checked_unit
from provision.hosts.operations import basic as ops
from provision.hosts.operations import notes
from provision.hosts.resources.base import HostResource, Operations, no_answer


@dataclass(frozen=True, slots=True)
class UnitState:
    """How a unit is; `name` is the full name."""

    kind: ClassVar[str] = "unit"
    name: str


@dataclass(frozen=True, slots=True)
class UnitStatus:
    """The state of a unit, in the terms of systemctl(1)."""

    load: str = "not-found"
    active: str = "inactive"
    sub: str = "dead"
    file: str = ""

    @property
    def exists(self) -> bool:
        """Whether systemd knows such a unit; one that does not exist neither runs nor starts at boot."""
        return self.load != "not-found"

    @property
    def running(self) -> bool:
        """Whether it is active or becoming so; one that failed and waits for its next start is neither."""
        return not self.stopped and not self.waiting

    @property
    def stopped(self) -> bool:
        """Whether it is not active, and systemd will not start it."""
        return self.active not in ("active", "activating", "reloading", "refreshing")

    @property
    def waiting(self) -> bool:
        """Whether it failed and systemd will start it again (`auto-restart`, `auto-restart-queued`)."""
        return self.sub.startswith("auto-restart")

    def is_as(self, running: bool) -> bool:
        """Whether it is running, or stopped, as desired."""
        return self.running if running else self.stopped

    @property
    def enabled(self) -> bool:
        """Whether it starts at boot, or is started by others (static, alias, generated, indirect)."""
        return self.file in ("enabled", "static", "alias", "generated", "indirect", "linked")

    @property
    def disabled(self) -> bool:
        """Whether boot does not start it."""
        return self.file not in ("enabled", "enabled-runtime")


_PROPERTIES = ("LoadState", "ActiveState", "SubState", "UnitFileState")


class UnitStateKind:
    """One `systemctl show` for all units; it answers in the order of the names."""

    query = UnitState

    def script(self, queries: Sequence[UnitState]) -> str:
        """Return the fragment."""
        names = ops.words(dict.fromkeys(query.name for query in queries))
        return f"systemctl show -p {','.join(_PROPERTIES)} -- {names}\nprintf '\\ndone\\n'"

    def parse(self, frame: Frame, queries: Sequence[UnitState]) -> Mapping[UnitState, object]:
        """Return a UnitStatus for each unit, by position."""
        names = list(dict.fromkeys(query.name for query in queries))
        text = frame.stdout.decode("utf-8", "replace")
        blocks = [block for block in text.split("\n\n") if block.strip()]
        if frame.dropped or not blocks or blocks[-1].strip() != "done" or len(blocks) - 1 != len(names):
            return dict.fromkeys(queries, no_answer(frame, "units"))
        answers: dict[str, object] = {}
        for name, block in zip(names, blocks, strict=False):
            fields = dict(line.partition("=")[::2] for line in block.strip().split("\n"))
            load, active, sub, file = (fields.get(member, "") for member in _PROPERTIES)
            answers[name] = Unknown(f"systemctl did not answer about {name}")
            if "LoadState" in fields and "ActiveState" in fields:
                answers[name] = UnitStatus(load, active, sub, file)
        return {query: answers[query.name] for query in queries}


@dataclass(frozen=True, slots=True)
class Service(HostResource):
    """A systemd unit that runs and starts at boot, or does not.

    Args:
        name: unit name; `.service` may be left out.
        running: whether it runs; None is unmanaged.
        enabled: whether it starts at boot; None is unmanaged.
    """

    kind: ClassVar[str] = "service"

    name: str
    running: bool | None = None
    enabled: bool | None = None

    def __post_init__(self) -> None:
        checked_unit(self.name)

    @property
    def unit(self) -> str:
        """The unit's full name."""
        return checked_unit(self.name)

    def _key_name(self) -> str:
        return self.unit

    def queries(self) -> tuple[UnitState, ...]:
        """Return the one query."""
        return (UnitState(self.unit),)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return what differs in running and enabled."""
        status: UnitStatus = snapshot[UnitState(self.unit)]
        if not status.exists:
            # A package or file of the same step may bring the unit: only the operations know.
            missing = self.running or self.enabled
            return (Change(Op.CREATE, "unit", "not found", self._desired()),) if missing else ()
        changes: list[Change] = []
        if self._enabled_differs(status):
            old, new = status.file or "disabled", "enabled" if self.enabled else "disabled"
            changes.append(Change(Op.UPDATE, "enabled", old, new))
        if self._running_differs(status):
            old = f"{status.active} ({status.sub})" if status.waiting else status.active
            changes.append(Change(Op.UPDATE, "running", old, "active" if self.running else "inactive"))
        return tuple(changes)

    def _enabled_differs(self, status: UnitStatus) -> bool:
        return self.enabled is not None and not (status.enabled if self.enabled else status.disabled)

    def _running_differs(self, status: UnitStatus) -> bool:
        return self.running is not None and not status.is_as(self.running)

    def _desired(self) -> str:
        words = [] if self.running is None else ["running" if self.running else "stopped"]
        words += [] if self.enabled is None else ["enabled" if self.enabled else "disabled"]
        return ", ".join(words)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how it is unmasked, enabled or disabled, then started or stopped."""
        status: UnitStatus = snapshot[UnitState(self.unit)]
        verbs: list[str] = []
        if status.file.startswith("masked") and (self.running or self.enabled):
            verbs.append("unmask")
        if self._enabled_differs(status) or (self.enabled is not None and not status.exists):
            verbs.append("enable" if self.enabled else "disable")
        if self._running_differs(status) or (self.running is not None and not status.exists):
            verbs.append("start" if self.running else "stop")
        note = notes.Note(notes.SERVICE, self.unit, _noted(status))
        return [note, *(ops.SetUnit(self.unit, verb) for verb in verbs)]


def _noted(status: UnitStatus) -> str:
    """Return how a unit is, in words that bring it back."""
    if not status.exists:
        return notes.MISSING
    file = status.file.removesuffix("-runtime") or "disabled"
    return f"{file} {'inactive' if status.stopped else 'active'}"
