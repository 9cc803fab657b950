"""What a user does next after a failure whose diagnostic names no remedy of its own."""

from __future__ import annotations

from dataclasses import replace

from provision.values.diagnostics import Diagnostic

_RESUME = "run the command again; it resumes here"
_BY_CODE = {
    "FIX_FAILED": f"see the whole output: `provision show last --full`, then correct the cause and {_RESUME}",
    "NOT_AS_DESIRED": f"find out what changes it back: another program, or another inventory; then {_RESUME}",
    "INTERRUPTED": "run the command again; it looks up how the interrupted action ended",
    "OUTCOME_UNKNOWN": "run the command again; it looks up how the action ended",
    "UNKNOWN": f"find out why there is no answer, then {_RESUME}",
    "JOURNAL_UNWRITABLE": f"free some disk space, or set PROVISION_STATE to another folder, then {_RESUME}",
}
_ANY = f"correct the cause, then {_RESUME}"


def with_next_step(diagnostic: Diagnostic) -> Diagnostic:
    """Return a diagnostic that says what to do next: its own remedy, or the one for its kind of failure."""
    if diagnostic.remedy:
        return diagnostic
    return replace(diagnostic, remedy=_BY_CODE.get(diagnostic.code, _ANY))
