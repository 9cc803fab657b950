"""The event stream of a run: the published contract of `--json`, and the only input of renderers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events; `at` is epoch seconds."""

    type: ClassVar[str] = "event"
    run: str
    at: float = field(default_factory=time.time)

    def as_json(self) -> dict[str, object]:
        """Return the published form: `type` and the fields, plain JSON types only."""
        return {"type": self.type, **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(Event):
    """A run began; `verb` is plan, apply, verify or destroy, `subjects` all that it is about.

    `steps` is how many steps it has; 0 where it has none (plan, verify).
    """

    type: ClassVar[str] = "run_started"
    inventory: str
    verb: str
    subjects: tuple[str, ...] = ()
    journal: str = ""
    steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted(Event):
    """A step began; `usually` is its median time in former runs in seconds, 0 if unknown."""

    type: ClassVar[str] = "step_started"
    subject: str
    role: str
    usually: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProgress(Event):
    """What a step does now: an action's label, or the last line of its output."""

    type: ClassVar[str] = "step_progress"
    subject: str
    role: str
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeMade(Event):
    """One resource was changed (or failed to be): `changes` as (op, path, old, new), secrets masked."""

    type: ClassVar[str] = "change"
    subject: str
    role: str
    key: str
    verdict: str
    changes: tuple[tuple[str, str, str, str], ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectDone(Event):
    """An effect happened (`reboot-guest`), or failed, or waits for consent."""

    type: ClassVar[str] = "effect"
    system: str
    effect: str
    verdict: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnded(Event):
    """A step ended with an outcome."""

    type: ClassVar[str] = "step_ended"
    subject: str
    role: str
    outcome: str
    seconds: float
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(Event):
    """A diagnostic, in its JSON form."""

    type: ClassVar[str] = "problem"
    diagnostic: dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePlanned(Event):
    """A plan would change one resource: `changes` as (op, path, old, new), secrets masked.

    `effects` follow the change, `risks` need consent before it, `by_hand` is for a person to do; with `owed`
    nothing differs, and only effects of an earlier run are due.
    """

    type: ClassVar[str] = "planned_change"
    subject: str
    role: str
    key: str
    changes: tuple[tuple[str, str, str, str], ...] = ()
    effects: tuple[str, ...] = ()
    risks: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()
    owed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOpen(Event):
    """A step that the plan could not look at: `state` is late or unreached; `excused`: no fault."""

    type: ClassVar[str] = "planned_step"
    subject: str
    role: str
    state: str
    reason: str
    excused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanMade(Event):
    """A plan is complete: its totals (`late` and `unreached` count steps, the others resources).

    `consents` are all effects as (system, effect, allow, ask or never), `orphans` what left the inventory.
    """

    type: ClassVar[str] = "plan"
    empty: bool
    refused: bool
    changes: int
    unchanged: int
    late: int
    unreached: int
    consents: tuple[tuple[str, str, str], ...] = ()
    orphans: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDone(Event):
    """A check ended: `outcome` is proven, failed, trivial, unknown or not-run, `message` why.

    `total` is how many checks there are; 0 where that is not known. `figures` are what it has measured: name,
    value, unit, expected (null where nothing is declared) and margin (as a share).
    """

    type: ClassVar[str] = "check"
    name: str
    subject: str
    outcome: str
    message: str = ""
    excused: bool = False
    seconds: float = 0.0
    total: int = 0
    figures: tuple[dict[str, object], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(Event):
    """A run ended: how many steps had which outcome, and the exit code."""

    type: ClassVar[str] = "run_ended"
    outcomes: dict[str, int]
    exit_code: int
    seconds: float


Emitter = Callable[[Event], None]
