"""Problems as data: one object renders to text with the inventory line, or to JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum


class Severity(StrEnum):
    """How much a diagnostic weighs: an error refuses, a warning is shown, a note informs."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Source:
    """A place in a file that a person wrote.

    Args:
        file: path as the user typed it.
        line: first line is 1.
        column: first column is 1.
        text: the whole line, without its newline; empty if it must not be shown.
        width: how many characters the mark under the line covers, at least 1.
    """

    file: str
    line: int
    column: int
    text: str = ""
    width: int = 1


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem, as a user should read it.

    Args:
        code: stable upper-case code (`VMID_TAKEN_FOREIGN`), listed in the docs.
        summary: one sentence: what is wrong.
        subject: whom it is about (`node-1`), or empty for the file as a whole.
        severity: error, warning or note.
        evidence: the last lines of what was seen, secrets already masked.
        source: where in the inventory it comes from.
        untouched: what was left as it was.
        remedy: what to do next, with the command if there is one.
    """

    code: str
    summary: str
    subject: str = ""
    severity: Severity = Severity.ERROR
    evidence: tuple[str, ...] = ()
    source: Source | None = None
    untouched: str = ""
    remedy: str = ""

    def masked(self, mask: Callable[[str], str]) -> Diagnostic:
        """Return it with secrets masked in all that was seen or said; the inventory's own line stays."""
        return replace(
            self,
            summary=mask(self.summary),
            evidence=tuple(map(mask, self.evidence)),
            remedy=mask(self.remedy),
        )

    def as_json(self) -> dict[str, object]:
        """Return the published form: only plain JSON types."""
        source = self.source
        return {
            "code": self.code,
            "severity": str(self.severity),
            "subject": self.subject,
            "summary": self.summary,
            "evidence": list(self.evidence),
            "untouched": self.untouched,
            "remedy": self.remedy,
            "source": None
            if source is None
            else {"file": source.file, "line": source.line, "column": source.column, "text": source.text},
        }
