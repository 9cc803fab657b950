"""Guarded commands of the inventory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from provision.contracts.change import Change, Key, Op
from provision.contracts.effect import Effect
from provision.contracts.query import Unknown
from provision.contracts.remedy import Remedy
from provision.contracts.snapshot import Snapshot
from provision.hosts.operations import basic as ops
from provision.hosts.queries.file import FileState
from provision.hosts.queries.shell import Shell
from provision.hosts.resources.base import cannot_tell, checked_path, unknown
from provision.values.diagnostics import Source


@dataclass(frozen=True, slots=True)
class Command:
    """A command that runs while its guard says that it is needed.

    Args:
        system: `vm-1/ssh`.
        name: how it is called in plans.
        run: POSIX shell text.
        creates: needed while this path is missing.
        unless: needed while this read-only shell text ends with a status other than 0.
        effects: what must happen after it.
        timeout: seconds it may take.
        source: inventory line.
    """

    system: str
    name: str
    run: str
    creates: str = ""
    unless: str = ""
    effects: tuple[Effect, ...] = ()
    timeout: float = 600.0
    source: Source | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not (self.creates or self.unless):
            raise ValueError(f"command {self.name!r} has no guard: creates or unless")
        if self.creates:
            checked_path(self.creates)

    @property
    def key(self) -> Key:
        """Identity."""
        return Key(self.system, "command", self.name)

    def queries(self) -> tuple[Any, ...]:
        """Return the questions of its guards."""
        found: list[Any] = []
        if self.creates:
            found.append(FileState(self.creates))
        if self.unless:
            found.append(Shell(self.unless))
        return tuple(found)

    def _unreadable(self, seen: Snapshot) -> Unknown | None:
        for query in self.queries():
            answer = seen[query]
            if isinstance(answer, Unknown):
                return answer
        return None

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Return the guard that says that it must run."""
        unreadable = self._unreadable(seen)
        if unreadable is not None:
            return (unknown("guard", unreadable, "done"),)
        if self.creates:
            made = seen[FileState(self.creates)].exists
            return () if made else (Change(Op.CREATE, self.creates, None, "made by the command"),)
        code = seen[Shell(self.unless)].rc
        return (Change(Op.UPDATE, "unless", f"status {code}", "status 0"),) if code else ()

    def fix(self, seen: Snapshot) -> Remedy:
        """Return how it is run."""
        unreadable = self._unreadable(seen)
        if unreadable is not None:
            return cannot_tell(self.key, unreadable.reason, self.source)
        run = ops.RunCommand(self.run, self.creates, self.unless)
        return ops.fix([run], self.effects, timeout=self.timeout)
