"""Outcomes of steps and the exit codes they lead to."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, StrEnum


class Outcome(StrEnum):
    """How a step ended."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    WAITING = "waiting"
    FAILED = "failed"
    BLOCKED = "blocked"
    UNREACHED = "unreached"
    LATE = "late"


class ExitCode(IntEnum):
    """Exit codes of the command line, documented in docs/exit-codes.md."""

    DONE = 0
    ERROR = 1
    CHANGES = 2
    VERIFY_FAILED = 3
    REFUSED = 4
    WAITING = 5
    LOCKED = 6
    UNKNOWN = 7
    USAGE = 64
    INTERRUPTED = 130


PRECEDENCE = (
    ExitCode.INTERRUPTED,
    ExitCode.LOCKED,
    ExitCode.USAGE,
    ExitCode.REFUSED,
    ExitCode.ERROR,
    ExitCode.VERIFY_FAILED,
    ExitCode.UNKNOWN,
    ExitCode.WAITING,
    ExitCode.CHANGES,
    ExitCode.DONE,
)


def worst(codes: Iterable[ExitCode]) -> ExitCode:
    """Return the code that wins by precedence; DONE when there is none."""
    return min(codes, key=PRECEDENCE.index, default=ExitCode.DONE)
