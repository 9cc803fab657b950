"""What is up and what drifts, by subject: a plan and its session in one line each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from provision.engine.model import Plan, PlannedChange
from provision.engine.session import AwayError, Session, System


class State(StrEnum):
    """Whether the systems of a subject answered."""

    UP = "up"
    OFF = "off"
    ABSENT = "absent"
    UNREACHABLE = "unreachable"
    NOT_ASKED = "not asked"


_WORST_FIRST = (State.UNREACHABLE, State.ABSENT, State.OFF, State.UP, State.NOT_ASKED)


@dataclass(frozen=True, slots=True)
class SubjectStatus:
    """One subject.

    Args:
        subject: its name.
        state: whether it answered; of several systems the worst.
        reason: why it did not; empty if it did.
        drift: resources that differ, or whose effects are still due from an earlier run.
        open_steps: steps that cannot be compared yet.
        problem: why a step of it could not be expanded, or empty.
    """

    subject: str
    state: State
    reason: str = ""
    drift: tuple[PlannedChange, ...] = ()
    open_steps: int = 0
    problem: str = ""


def subject_states(plan: Plan, session: Session, names: Iterable[str]) -> tuple[SubjectStatus, ...]:
    """Return the status of subjects.

    Args:
        plan: what was planned in the session.
        session: what its systems answered.
        names: of the subjects.
    """
    return tuple(_subject(plan, session, name) for name in names)


def _subject(plan: Plan, session: Session, name: str) -> SubjectStatus:
    steps = [step for step in plan.steps if step.step.id.subject == name]
    answered = [_state(session.systems[system]) for system in session.of_subject(name)]
    asked = [state for state in answered if state[0] is not State.NOT_ASKED]
    state, reason = min(asked, key=lambda one: _WORST_FIRST.index(one[0]), default=(State.NOT_ASKED, ""))
    return SubjectStatus(
        name,
        state,
        reason,
        tuple(change for step in steps for change in step.changes),
        sum(bool(step.late or step.unreached) for step in steps),
        next((step.problem.summary for step in steps if step.problem is not None), ""),
    )


def _state(system: System) -> tuple[State, str]:
    if system.snapshot is not None:
        return State.UP, ""
    error = system.error
    if error is None:
        return State.NOT_ASKED, ""
    reason = error.diagnostics[0].summary
    if not isinstance(error, AwayError):
        return State.UNREACHABLE, reason
    if error.away.absent:
        return State.ABSENT, reason
    return State.OFF if error.away.late or error.away.excused else State.UNREACHABLE, reason
