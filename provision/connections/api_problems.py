"""What is said of a failed exchange with an API: what happened, and what may have taken effect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from provision.values.diagnostics import Diagnostic
from provision.values.errors import UnknownOutcome

NOTHING_SENT = "Nothing was sent to the API."


@dataclass(frozen=True, slots=True)
class ApiProblems:
    """The problems of one API.

    Args:
        url: its address.
        subject: whose API it is.
        kind: which API it should be, as a user reads it (`a web API`).
        if_silent: what to do where it does not answer.
        if_another: what to do where something else answers.
        codes: of an API that does not answer, of something else that does, and of an answer that is missing.
    """

    url: str
    subject: str
    kind: str
    if_silent: str
    if_another: str
    codes: tuple[str, str, str] = ("API_UNREACHABLE", "API_UNREADABLE", "API_ANSWER_LOST")

    def problem(self, code: str, summary: str, **more: Any) -> Diagnostic:
        """Return a problem of this API."""
        return Diagnostic(code, summary, self.subject, **more)

    def unreachable(self, reason: str) -> Diagnostic:
        """Return that it does not answer."""
        evidence = (reason,) if reason else ()
        return self.problem(
            self.codes[0], f"{self.url} does not answer", evidence=evidence, remedy=self.if_silent
        )

    def unreadable(self, reason: str) -> Diagnostic:
        """Return that something else answers."""
        return self.problem(self.codes[1], f"{self.url} is not {self.kind}: {reason}", remedy=self.if_another)

    def lost(self, method: str, path: str, reason: str) -> UnknownOutcome:
        """Return that a write was sent and its answer is missing."""
        what = f"{method} {path.partition('?')[0]}"
        return UnknownOutcome(
            self.problem(
                self.codes[2],
                f"{what} was sent, and no answer came: it may have taken effect",
                evidence=(reason,),
                remedy="Run the command again: it checks the present state first.",
            )
        )
