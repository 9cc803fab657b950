"""What destroy brings back on machines that stay, beside their files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.effect import Effect
from provision.contracts.snapshot import Snapshot
from provision.hosts.change_effects import effects_of_path
from provision.hosts.operations.basic import RemoveFile
from provision.hosts.operations.notes import MISSING, MODULE, PACKAGE, SERVICE, BringBack
from provision.hosts.queries.notes import NotedState, NotedStates
from provision.hosts.queries.saved import OwnFiles
from provision.hosts.resources.base import HostResource, Operations


@dataclass(frozen=True, slots=True)
class StatesAsBefore(HostResource):
    """No state is noted any more: what was changed is as before, what was added is named and stays."""

    kind: ClassVar[str] = "states-as-before"

    def _key_name(self) -> str:
        return "noted"

    def queries(self) -> tuple[NotedStates, ...]:
        """Return the one query."""
        return (NotedStates(),)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return one change for each noted state."""
        return tuple(_change(state) for state in snapshot[NotedStates()])

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how they are brought back."""
        return [BringBack(*state) for state in snapshot[NotedStates()]]

    def _seconds(self) -> float:
        return 1800.0


def _change(state: NotedState) -> Change:
    path = f"{state.of} {state.name}"
    # What others may have come to need is named, for a person to decide.
    if state.of == MODULE:
        return Change(Op.ATTENTION, path, "not loaded before", "loaded until the next boot")
    if state.of == PACKAGE:
        if state.value != MISSING:
            return Change(Op.ATTENTION, path, f"{state.value} before", "left as it is")
        return Change(Op.ATTENTION, path, "not installed before", "left as it is")
    if state.of == SERVICE and state.value == MISSING:
        return Change(Op.ATTENTION, path, "missing before", "left with its package")
    return Change(Op.UPDATE, path, "changed", state.value)


@dataclass(frozen=True, slots=True)
class OwnFilesGone(HostResource):
    """No file of our name is left that we made, also of what the inventory declares no more."""

    kind: ClassVar[str] = "own-files-gone"

    def _key_name(self) -> str:
        return "own files"

    def queries(self) -> tuple[OwnFiles, ...]:
        """Return the one query."""
        return (OwnFiles(),)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return the files that are there."""
        return tuple(Change(Op.DELETE, path, "file", None) for path in snapshot[OwnFiles()])

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return their removal."""
        return [RemoveFile(path, save=False) for path in snapshot[OwnFiles()]]

    def _due_effects(self, snapshot: Snapshot, /) -> tuple[Effect, ...]:
        """Return what the places of the files cost."""
        effects = (effect for path in snapshot[OwnFiles()] for effect in effects_of_path(path, None))
        return tuple(dict.fromkeys(effects))


def as_before(system: str) -> tuple[StatesAsBefore, OwnFilesGone]:
    """Return what ends every removal from a machine that stays.

    States come first: a unit that only our file made is stopped while it has that file.
    """
    return StatesAsBefore(system), OwnFilesGone(system)
