"""Former runs as text, from the journal."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from provision.contracts.change import Change, Op
from provision.report.checks import PROVEN, check_lines, totals
from provision.report.diff import field_line, is_text, text_diff
from provision.report.problems import print_diagnostics
from provision.report.sentences import diagnostic_of
from provision.report.style import count, duration, glyphs, printable, say
from provision.values.diagnostics import Diagnostic
from provision.values.outcomes import ExitCode, Outcome

if TYPE_CHECKING:
    from rich.console import Console

LAST = 12
"""Lines of what failed that are shown without `--full`."""
MEANING = {
    ExitCode.DONE: "done",
    ExitCode.ERROR: "failed",
    ExitCode.CHANGES: "changes present",
    ExitCode.VERIFY_FAILED: "verification failed",
    ExitCode.REFUSED: "refused",
    ExitCode.WAITING: "waiting for consent or a person",
    ExitCode.LOCKED: "locked",
    ExitCode.UNKNOWN: "some checks unknown",
    ExitCode.USAGE: "usage or inventory",
    ExitCode.INTERRUPTED: "interrupted",
}


@dataclass(frozen=True, slots=True)
class StepRecord:
    """How a step ended; `started` is None if it never began, and in journals of earlier versions."""

    subject: str
    role: str
    outcome: str
    seconds: float
    reason: str
    started: float | None = None


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """How one resource was changed; output has its secrets masked already."""

    subject: str
    role: str
    key: str
    fields: tuple[Change, ...]
    verdict: str
    seconds: float
    output: str


@dataclass(frozen=True, slots=True)
class EffectRecord:
    """How an effect ended."""

    system: str
    effect: str
    verdict: str
    seconds: float
    output: str


@dataclass(frozen=True, slots=True)
class CheckRecord:
    """How a check of a verification ended; `message` is its evidence."""

    name: str
    subject: str
    outcome: str
    message: str
    excused: bool
    started: float
    seconds: float


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run; `seconds` and `exit_code` are None when it never ended (it was killed)."""

    id: str
    inventory: str
    verb: str
    started: float
    who: str
    seconds: float | None
    exit_code: int | None
    interrupted: bool
    steps: tuple[StepRecord, ...] = ()
    changes: tuple[ChangeRecord, ...] = ()
    effects: tuple[EffectRecord, ...] = ()
    problems: tuple[Diagnostic, ...] = ()
    begun: tuple[str, ...] = ()
    checks: tuple[CheckRecord, ...] = ()

    @property
    def result(self) -> str:
        """How it ended, in words."""
        if self.exit_code is None:
            return "did not end: it was killed, or still runs"
        return (
            MEANING[ExitCode(self.exit_code)] if self.exit_code in set(ExitCode) else f"exit {self.exit_code}"
        )


def record(row: Mapping[str, Any]) -> RunRecord:
    """Return a run from the journal's rows (see `provision.api.past_runs.run`)."""
    return RunRecord(
        id=row["id"],
        inventory=row["inventory"],
        verb=row["verb"],
        started=row["started"],
        who=row["who"],
        seconds=row["seconds"],
        exit_code=row["exit_code"],
        interrupted=bool(row["interrupted"]),
        steps=tuple(
            StepRecord(
                step["subject"],
                step["role"],
                step["outcome"],
                step["seconds"],
                step["reason"],
                step.get("started"),  # journals of earlier versions have no such column
            )
            for step in row.get("steps", ())
        ),
        changes=tuple(_change(change) for change in row.get("changes", ())),
        effects=tuple(
            EffectRecord(
                effect["system"],
                effect["effect"],
                effect["verdict"],
                effect["seconds"],
                effect.get("output", ""),  # the same
            )
            for effect in row.get("effects", ())
        ),
        problems=tuple(
            diagnostic_of(_parsed(problem["diagnostic"], {})) for problem in row.get("problems", ())
        ),
        begun=tuple(
            f"{intent['subject']}: {intent['role']}: {', '.join(map(str, _parsed(intent['what'], [])))}"
            for intent in row.get("intents", ())
        ),
        checks=tuple(
            CheckRecord(
                check["name"],
                check["subject"],
                check["outcome"],
                check["message"],
                bool(check["excused"]),
                check["started"],
                check["seconds"],
            )
            for check in row.get("checks", ())
        ),
    )


def _change(row: Mapping[str, Any]) -> ChangeRecord:
    fields = []
    for op, path, old, new in _parsed(row["fields"], []):
        sign = Op(op) if op in set(Op) else Op.UPDATE
        # The journal has text only: an empty one stands for nothing there.
        before = None if sign is Op.CREATE and old in ("", new) else old
        after = None if not new and sign is Op.DELETE else new
        fields.append(Change(sign, path, before, after))
    return ChangeRecord(
        row["subject"], row["role"], row["key"], tuple(fields), row["verdict"], row["seconds"], row["output"]
    )


def _parsed(text: str, otherwise: Any) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return otherwise


def moment(seconds: float) -> str:
    """Return a time as local date and time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def time_of_day(seconds: float | None) -> str:
    """Return a time as local hours, minutes and seconds; empty if unknown."""
    return "" if seconds is None else time.strftime("%H:%M:%S", time.localtime(seconds))


def print_runs(console: Console, runs: Sequence[RunRecord]) -> None:
    """Print former runs, one a line."""
    if not runs:
        console.print("No run yet.")
        return
    widths = [max(len(text) for text in column) for column in zip(*map(_columns, runs), strict=True)]
    for run in runs:
        line = "  ".join(f"{text:<{width}}" for text, width in zip(_columns(run), widths, strict=True))
        say(console, line.rstrip(), "" if run.exit_code == ExitCode.DONE else "yellow")


def _columns(run: RunRecord) -> tuple[str, ...]:
    spent = "" if run.seconds is None else duration(run.seconds)
    columns = (run.id, moment(run.started), run.verb, run.inventory, spent, run.result)
    return tuple(map(printable, columns))


def print_run(console: Console, run: RunRecord, *, full: bool = False) -> None:
    """Print one run: its steps, what they changed, its checks, and what went wrong.

    Args:
        console: where to.
        run: from the journal.
        full: whole contents, all output of every change and effect, and every check.
    """
    spent = "" if run.seconds is None else f" after {duration(run.seconds)}"
    say(console, printable(f"{run.verb} {run.inventory}: run {run.id}"), "bold")
    who = f" by {run.who}" if run.who else ""
    say(console, printable(f"started {moment(run.started)}{who}; {run.result}{spent}"))
    console.print()
    for step in run.steps:
        if step.outcome != Outcome.UNCHANGED or full:
            say(console, printable(_step_line(step)), "bold")
        for change in run.changes:
            if (change.subject, change.role) == (step.subject, step.role):
                _print_change(console, change, full=full)
    if run.seconds is None and run.begun:
        say(console, printable(f"last action begun: {run.begun[-1]}"), "yellow")
    unchanged = sum(step.outcome == Outcome.UNCHANGED for step in run.steps)
    if unchanged and not full:
        say(console, f"{count(unchanged, 'step')} unchanged", "dim")
    for effect in run.effects:
        say(
            console,
            printable(f"{effect.system}: {effect.effect}: {effect.verdict}, {duration(effect.seconds)}"),
        )
        _print_output(console, effect.output, failed=effect.verdict != "done", full=full)
    _print_checks(console, run.checks, full=full)
    if run.problems:
        console.print()
        print_diagnostics(console, run.problems, full=full)


def _step_line(step: StepRecord) -> str:
    began = f"{time_of_day(step.started)} " if step.started is not None else ""
    reason = f": {step.reason}" if step.reason else ""
    return f"{began}{step.subject}: {step.role}: {step.outcome}, {duration(step.seconds)}{reason}"


def _print_checks(console: Console, checks: Sequence[CheckRecord], *, full: bool) -> None:
    """Print how many checks are proven, and those that are not with their evidence."""
    if not checks:
        return
    say(console, totals(checks))
    for check in checks:
        if check.outcome != PROVEN or full:
            for line in check_lines(check, console.width, when=time_of_day(check.started)):
                console.print(line, soft_wrap=True)


def _print_change(console: Console, change: ChangeRecord, *, full: bool) -> None:
    signs = glyphs(console.encoding)
    heading = f"  {change.key}: {change.verdict}, {duration(change.seconds)}"
    say(console, printable(heading), "red" if change.verdict != "done" else "")
    for field in change.fields:
        if is_text(field.old) or is_text(field.new):
            say(console, f"      {field.op} {printable(field.path)}")
            for sign, line in text_diff(field, full=full):
                say(console, f"        {sign if sign != '@' else ' '} {line}", "dim")
        else:
            line = field_line(field, console.width - 8, signs, full=full)
            say(console, f"      {field.op} {line}")
    _print_output(console, change.output, failed=change.verdict != "done", full=full)


def _print_output(console: Console, output: str, *, failed: bool, full: bool) -> None:
    """Print output: with `full` all that was kept, otherwise the last lines of what failed."""
    lines = [printable(line).rstrip() for line in output.splitlines()]
    hidden = 0 if full else max(len(lines) - LAST, 0) if failed else len(lines)
    if hidden and failed:
        lines.insert(hidden, f"({count(hidden, 'earlier line')} not shown: --full shows all)")
    for line in lines[hidden:]:
        say(console, f"      | {line}", "dim")
