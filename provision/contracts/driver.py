"""What opens, asks and changes one system."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from provision.contracts.change import Key
from provision.contracts.effect import Effect
from provision.contracts.query import ApiReply
from provision.contracts.remedy import ApiCall, Fix
from provision.contracts.snapshot import Snapshot
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic


class Verdict(StrEnum):
    """How one action ended. `indeterminate` is looked up, never repeated; `not-begun` follows a failure."""

    DONE = "done"
    FAILED = "failed"
    INDETERMINATE = "indeterminate"
    NOT_BEGUN = "not-begun"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do on a system: a resource's remedy, or effects alone (key None)."""

    key: Key | None
    label: str
    remedy: Fix | ApiCall
    effects: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """How an action ended.

    Args:
        verdict: done, failed, indeterminate, not-begun.
        seconds: how long it took.
        diagnostic: what went wrong, None when done.
        output: last lines, secrets masked.
        handle: UPID or process group by which an indeterminate outcome is looked up.
        kept: all output that was kept (first and last 64 KiB of each stream), secrets masked; empty where
            `output` is all there is.
    """

    verdict: Verdict
    seconds: float = 0.0
    diagnostic: Diagnostic | None = None
    output: tuple[str, ...] = ()
    handle: str = ""
    kept: str = field(default="", repr=False)

    @property
    def whole(self) -> str:
        """All output that there is, for the journal."""
        return self.kept or "\n".join(self.output)


Emit = Callable[[str], None]
"""Receives the last whole output line of what runs, at most four a second."""


class Driver(Protocol):
    """One per open system; asks and acts with as few round trips as possible. Not thread-safe."""

    system: str

    @property
    def round_trips(self) -> int:
        """Executions (hosts) or requests (APIs) so far; tests hold the engine to it."""

    def answer(self, queries: frozenset[Any], cancel: Cancel) -> Snapshot:
        """Ask everything at once: one execution on a host.

        Raises:
            Transient, Permanent, Refused: the system gives no answers at all.
        """

    def act(
        self, run: str, actions: Sequence[Action], effects: Sequence[Effect], emit: Emit, cancel: Cancel
    ) -> list[Result]:
        """Do the actions in order, then the effects, in one execution.

        Args:
            run: id of the run, written into lock and markers.
            actions: remedies; markers of `action.effects` are written before they begin, and those of effects
                that are not in `effects` stay: deferred, or without consent.
            effects: what to do now, merged and ranked, no reboots; success removes their markers.
            emit: live output.
            cancel: `leaving` kills what runs.

        Returns:
            One result per action, then one per effect.
        """

    def reboot(self, effect: Effect, emit: Emit, cancel: Cancel) -> str:
        """Reboot, wait for another boot id, reconnect, and return it. Its marker is satisfied by that."""

    def close(self) -> None:
        """Release the connection."""


class Hold(Protocol):
    """A lock that is held until it is released, or until the connection to its host ends."""

    @property
    def alive(self) -> bool:
        """Whether it is still held."""

    def idle(self, run: str) -> float:
        """Return the seconds for which no other run than `run` had held it; 0.0 if that is unknown."""

    def release(self) -> None:
        """Free it; safe to call twice."""


@runtime_checkable
class Keeper(Protocol):
    """A driver whose host can hold the lock of another system (that of an API which it serves)."""

    def hold(self, run: str, what: str, cancel: Cancel) -> Hold:
        """Take the lock of the system `what`.

        Raises:
            ProvisionError: another run holds it (exit 6), or the host gives no answers.
        """


@runtime_checkable
class Sender(Protocol):
    """A driver of an API to which checks send requests of their own."""

    def send(self, method: str, path: str, body: Mapping[str, object] | None = None) -> ApiReply:
        """Send one request and return the answer, whatever the API says.

        Raises:
            ProvisionError: no answer.
        """
