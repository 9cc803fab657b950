"""Guarded commands of the inventory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.snapshot import Snapshot
from provision.hosts.operations import basic as ops
from provision.hosts.queries.file import FileState
from provision.hosts.queries.shell import Shell
from provision.hosts.resources.base import HostResource, Operations, checked_line, checked_path


@dataclass(frozen=True, slots=True)
class Command(HostResource):
    """A command that runs while its guard requires it.

    Args:
        name: how it is called in plans.
        run: POSIX shell text.
        creates: needed while this path is missing.
        unless: needed while this read-only shell text ends with a status other than 0.
        timeout: seconds it may take.
    """

    kind: ClassVar[str] = "command"

    name: str
    run: str
    creates: str = ""
    unless: str = ""
    timeout: float = 600.0

    def __post_init__(self) -> None:
        if not (self.creates or self.unless):
            raise ValueError(f"command {self.name!r} has no guard: creates or unless")
        checked_line(self.name, "the name of a command")
        if "\0" in self.run or "\0" in self.unless:
            raise ValueError(f"command {self.name!r}: a shell cannot hold a NUL character")
        if self.creates:
            checked_path(self.creates)

    def _key_name(self) -> str:
        return self.name

    def _seconds(self) -> float:
        return self.timeout

    def queries(self) -> tuple[Any, ...]:
        """Return the queries of its guards."""
        creates = (FileState(self.creates),) if self.creates else ()
        return (*creates, Shell(self.unless)) if self.unless else creates

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return the guard that requires a run."""
        if self.creates:
            made = snapshot[FileState(self.creates)].exists
            return () if made else (Change(Op.CREATE, self.creates, None, "made by the command"),)
        code = snapshot[Shell(self.unless)].rc
        return (Change(Op.UPDATE, "unless", f"status {code}", "status 0"),) if code else ()

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how it is run."""
        del snapshot
        return [ops.RunCommand(self.run, self.creates, self.unless)]
