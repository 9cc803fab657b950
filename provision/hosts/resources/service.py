"""systemd units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from provision.contracts.change import Change, Key, Op
from provision.contracts.effect import Effect
from provision.contracts.query import Frame, Unknown
from provision.contracts.remedy import Remedy
from provision.contracts.snapshot import Snapshot
from provision.hosts.operations import basic as ops
from provision.hosts.operations.basic import words
from provision.hosts.resources.base import cannot_tell, checked_unit, unknown, why
from provision.values.diagnostics import Source


@dataclass(frozen=True, slots=True)
class UnitState:
    """How a unit is; `name` is the full name."""

    kind: ClassVar[str] = "unit"
    name: str


@dataclass(frozen=True, slots=True)
class UnitStatus:
    """What systemd says of a unit, in its own words (systemctl(1))."""

    load: str = "not-found"
    active: str = "inactive"
    sub: str = "dead"
    file: str = ""

    @property
    def running(self) -> bool:
        """Whether it is active or becoming so; one that died and waits for its next try is neither."""
        return not self.stopped and not self.waiting

    @property
    def stopped(self) -> bool:
        """Whether it is not active, and will not be by its own."""
        return self.active not in ("active", "activating", "reloading", "refreshing")

    @property
    def waiting(self) -> bool:
        """Whether it died and systemd will start it again (`auto-restart`, `auto-restart-queued`)."""
        return self.sub.startswith("auto-restart")

    def is_as(self, running: bool) -> bool:
        """Whether it runs, or is stopped, as is wished."""
        return self.running if running else self.stopped

    @property
    def enabled(self) -> bool:
        """Whether it starts at boot, or is is started by others (static, alias, generated, indirect)."""
        return self.file in ("enabled", "static", "alias", "generated", "indirect", "linked")

    @property
    def disabled(self) -> bool:
        """Whether it does not start at boot by its own."""
        return self.file not in ("enabled", "enabled-runtime")


_PROPERTIES = "LoadState,ActiveState,SubState,UnitFileState"


class UnitStateKind:
    """One `systemctl show` for all units; it answers in the order of the names."""

    query = UnitState

    def script(self, queries: Sequence[UnitState]) -> str:
        """Return the fragment."""
        names = words(dict.fromkeys(each.name for each in queries))
        return f"systemctl show -p {_PROPERTIES} -- {names}\nprintf '\\ndone\\n'"

    def parse(self, frame: Frame, queries: Sequence[UnitState]) -> Mapping[UnitState, object]:
        """Return a UnitStatus for each unit, by position."""
        names = list(dict.fromkeys(each.name for each in queries))
        text = frame.stdout.decode("utf-8", "replace")
        blocks = [block for block in text.split("\n\n") if block.strip()]
        if frame.dropped or not blocks or blocks[-1].strip() != "done" or len(blocks) - 1 != len(names):
            return dict.fromkeys(queries, why(frame, "units"))
        found: dict[str, object] = {}
        for name, block in zip(names, blocks, strict=False):
            fields = dict(line.partition("=")[::2] for line in block.strip().split("\n"))
            if "LoadState" not in fields or "ActiveState" not in fields:
                found[name] = Unknown(f"systemctl said nothing of {name}")
                continue
            found[name] = UnitStatus(
                fields["LoadState"],
                fields["ActiveState"],
                fields.get("SubState", ""),
                fields.get("UnitFileState", ""),
            )
        return {each: found[each.name] for each in queries}


@dataclass(frozen=True, slots=True)
class Service:
    """A systemd unit that runs and starts at boot, or does not.

    Args:
        system: `vm-1/ssh`.
        name: unit name; `.service` may be left out.
        running: whether it runs; None is unmanaged.
        enabled: whether it starts at boot; None is unmanaged.
        effects: what must happen after a change.
        source: inventory line.
    """

    system: str
    name: str
    running: bool | None = None
    enabled: bool | None = None
    effects: tuple[Effect, ...] = ()
    source: Source | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        checked_unit(self.name)

    @property
    def unit(self) -> str:
        """The unit's full name."""
        return checked_unit(self.name)

    @property
    def key(self) -> Key:
        """Identity."""
        return Key(self.system, "service", self.unit)

    def queries(self) -> tuple[UnitState, ...]:
        """Return the one question."""
        return (UnitState(self.unit),)

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Return what differs in running and enabled."""
        status = seen[UnitState(self.unit)]
        if isinstance(status, Unknown):
            return (unknown("unit", status, self._wanted()),)
        if status.load == "not-found":
            # A unit that does not exist neither runs nor starts at boot.
            if not self.running and not self.enabled:
                return ()
            # A package or file of the same step may bring it: only the fix can tell.
            return (Change(Op.CREATE, "unit", "not found", self._wanted()),)
        found: list[Change] = []
        if self.enabled is not None and not (status.enabled if self.enabled else status.disabled):
            found.append(Change(Op.UPDATE, "enabled", status.file or "disabled", _enabled(self.enabled)))
        if self.running is not None and not status.is_as(self.running):
            old = f"{status.active} ({status.sub})" if status.waiting else status.active
            found.append(Change(Op.UPDATE, "running", old, "active" if self.running else "inactive"))
        return tuple(found)

    def _wanted(self) -> str:
        words_ = [] if self.running is None else ["running" if self.running else "stopped"]
        words_ += [] if self.enabled is None else [_enabled(self.enabled)]
        return ", ".join(words_) or "present"

    def fix(self, seen: Snapshot) -> Remedy:
        """Return how it is unmasked, enabled or disabled, then started or stopped."""
        status = seen[UnitState(self.unit)]
        if isinstance(status, Unknown):
            return cannot_tell(self.key, status.reason, self.source)
        done: list[ops.Operation] = []
        masked = status.file.startswith("masked")
        if masked and (self.running or self.enabled):
            done.append(ops.SetUnit(self.unit, "unmask"))
        unborn = status.load == "not-found"
        if self.enabled is not None and (unborn or not (status.enabled if self.enabled else status.disabled)):
            done.append(ops.SetUnit(self.unit, "enable" if self.enabled else "disable"))
        if self.running is not None and (unborn or not status.is_as(self.running)):
            done.append(ops.SetUnit(self.unit, "start" if self.running else "stop"))
        return ops.fix(done, self.effects)


def _enabled(enabled: bool) -> str:
    return "enabled" if enabled else "disabled"
