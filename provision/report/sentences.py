"""Events of a run as sentences for people."""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatch

from provision.report.style import count, duration, printable
from provision.values.diagnostics import Diagnostic, Severity, Source
from provision.values.events import ChangeMade, EffectDone, Event, Problem, RunStarted, StepEnded

_OUTCOME_STYLES = {
    "changed": "yellow",
    "failed": "bold red",
    "blocked": "red",
    "unreached": "red",
    "waiting": "bold yellow",
    "late": "yellow",
}
_VERDICTS = {"done": "done", "failed": "FAILED", "indeterminate": "outcome unknown", "not-begun": "not begun"}


Lines = list[tuple[str, str]]
"""Lines for people, each with its style."""


@singledispatch
def sentences(_event: Event) -> Lines:
    """Return an event as lines for people; none for what only moves the table, or what the summary says."""
    return []


@sentences.register
def _(event: RunStarted) -> Lines:
    journal = f", journal {event.journal}" if event.journal else ""
    subjects = f", {count(len(event.subjects), 'subject')}" if event.subjects else ""
    return [(printable(f"{event.verb} {event.inventory}: run {event.run}{subjects}{journal}"), "bold")]


@sentences.register
def _(event: ChangeMade) -> Lines:
    system, kind, name = [*event.key.split(":", 2), "", ""][:3]
    where = system.split("/")[0]
    place = "" if where == event.subject else f" on {where}"
    what = f"{kind} {name}".rstrip() or system
    text = f"{event.subject}: {event.role}: {what}{place}: {_verdict(event.verdict, event.seconds)}"
    return [(printable(text), "bold red" if event.verdict == "failed" else "")]


@sentences.register
def _(event: EffectDone) -> Lines:
    text = f"{event.system}: {event.effect}: {_verdict(event.verdict, event.seconds)}"
    return [(printable(text), "bold red" if event.verdict == "failed" else "cyan")]


@sentences.register
def _(event: StepEnded) -> Lines:
    if event.outcome == "unchanged" and not event.reason and event.seconds < 1:
        return []  # of a thousand nodes most say this
    reason = f": {event.reason}" if event.reason else ""
    text = f"{event.subject}: {event.role}: {event.outcome}, {duration(event.seconds)}{reason}"
    return [(printable(text), _OUTCOME_STYLES.get(event.outcome, "dim"))]


@sentences.register
def _(event: Problem) -> Lines:
    diagnostic = diagnostic_of(event.diagnostic)
    subject = f"{diagnostic.subject}: " if diagnostic.subject else ""
    style = "bold red" if diagnostic.severity is Severity.ERROR else "yellow"
    heading = (printable(f"{subject}{diagnostic.code}: {diagnostic.summary}"), style)
    return [heading, *((f"    | {printable(line)}", "dim") for line in diagnostic.evidence[-3:])]


def _verdict(verdict: str, seconds: float) -> str:
    spent = f", {duration(seconds)}" if seconds >= 1 else ""
    return f"{_VERDICTS.get(verdict, verdict)}{spent}"


def diagnostic_of(data: Mapping[str, object]) -> Diagnostic:
    """Return the diagnostic that a Problem event carries; lenient, for it may come from an older journal."""
    source = data.get("source")
    evidence = data.get("evidence")
    severity = str(data.get("severity", "error"))
    return Diagnostic(
        code=str(data.get("code", "PROBLEM")),
        summary=str(data.get("summary", "")),
        subject=str(data.get("subject", "")),
        severity=Severity(severity) if severity in set(Severity) else Severity.ERROR,
        evidence=tuple(map(str, evidence)) if isinstance(evidence, list | tuple) else (),
        source=None if not isinstance(source, Mapping) else _source(source),
        untouched=str(data.get("untouched", "")),
        remedy=str(data.get("remedy", "")),
    )


def _source(data: Mapping[str, object]) -> Source:
    def number(name: str) -> int:
        value = data.get(name)
        return value if isinstance(value, int) else 1

    return Source(str(data.get("file", "")), number("line"), number("column"), str(data.get("text", "")))
