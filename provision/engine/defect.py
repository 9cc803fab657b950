"""A defect of the tool, reported by where it happened: values and messages may hold secrets."""

from __future__ import annotations

import traceback
from pathlib import PurePath

from provision.values.diagnostics import Diagnostic

FRAMES = 8
"""How many calls are listed, the innermost ones."""


def defect(code: str, what: str, subject: str, error: BaseException, untouched: str = "") -> Diagnostic:
    """Return the problem of an error that nobody expected.

    Args:
        code: stable code.
        what: what failed, in words.
        subject: whom it was about.
        error: what was raised.
        untouched: what was left as it was.
    """
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    return Diagnostic(
        code,
        f"{what}: {type(error).__name__}",
        subject=subject,
        evidence=tuple(f"{PurePath(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in frames),
        untouched=untouched,
        remedy="this is a bug in provision: report it with these lines",
    )
