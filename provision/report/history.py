"""Former runs as text, from the journal."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from provision.contracts.change import Change, Op
from provision.report.diff import field_line, is_text, text_diff
from provision.report.problems import print_diagnostics
from provision.report.progress import diagnostic_of
from provision.report.style import count, duration, glyphs, printable
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
    ExitCode.UNKNOWN: "unknown",
    ExitCode.USAGE: "usage or inventory",
    ExitCode.INTERRUPTED: "interrupted",
}


@dataclass(frozen=True, slots=True)
class StepRecord:
    """How a step ended."""

    subject: str
    role: str
    outcome: str
    seconds: float
    reason: str


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

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        if self.exit_code is None:
            return "did not end: killed, or still running"
        return (
            MEANING[ExitCode(self.exit_code)] if self.exit_code in set(ExitCode) else f"exit {self.exit_code}"
        )


def record(row: Mapping[str, Any]) -> RunRecord:
    """Return a run from the journal's rows (see `provision.engine.journal.run`)."""
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
            StepRecord(each["subject"], each["role"], each["outcome"], each["seconds"], each["reason"])
            for each in row.get("steps", ())
        ),
        changes=tuple(_change(each) for each in row.get("changes", ())),
        effects=tuple(
            # Runs of a version that kept no output of effects have no such column.
            EffectRecord(
                each["system"], each["effect"], each["verdict"], each["seconds"], each.get("output", "")
            )
            for each in row.get("effects", ())
        ),
        problems=tuple(diagnostic_of(_loaded(each["diagnostic"], {})) for each in row.get("problems", ())),
        begun=tuple(
            f"{each['subject']}: {each['role']}: {', '.join(map(str, _loaded(each['what'], [])))}"
            for each in row.get("intents", ())
        ),
    )


def _change(row: Mapping[str, Any]) -> ChangeRecord:
    fields = []
    for op, path, old, new in _loaded(row["fields"], []):
        sign = Op(op) if op in set(Op) else Op.UPDATE
        # The journal has text only: an empty one stands for nothing there.
        before = None if not old and sign is Op.CREATE else old
        after = None if not new and sign is Op.DELETE else new
        fields.append(Change(sign, path, before, after))
    return ChangeRecord(
        row["subject"], row["role"], row["key"], tuple(fields), row["verdict"], row["seconds"], row["output"]
    )


def _loaded(text: str, otherwise: Any) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return otherwise


def moment(seconds: float) -> str:
    """Return a time as local date and time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def print_runs(console: Console, runs: Sequence[RunRecord]) -> None:
    """Print former runs, one a line."""
    if not runs:
        console.print("No run yet.")
        return
    widths = [max(len(text) for text in column) for column in zip(*map(_columns, runs), strict=True)]
    for each in runs:
        line = "  ".join(f"{text:<{width}}" for text, width in zip(_columns(each), widths, strict=True))
        style = "" if each.exit_code == ExitCode.DONE else "yellow"
        console.print(Text(line.rstrip(), style=style), soft_wrap=True)


def _columns(run: RunRecord) -> tuple[str, ...]:
    spent = "" if run.seconds is None else duration(run.seconds)
    return tuple(
        printable(each) for each in (run.id, moment(run.started), run.verb, run.inventory, spent, run.ending)
    )


def print_run(console: Console, run: RunRecord, *, full: bool = False) -> None:
    """Print one run: its steps, what they changed, and what went wrong.

    Args:
        console: where to.
        run: from the journal.
        full: whole contents, and all output of every change and effect.
    """
    spent = "" if run.seconds is None else f" after {duration(run.seconds)}"
    console.print(Text(printable(f"{run.verb} {run.inventory}: run {run.id}"), style="bold"), soft_wrap=True)
    who = f" by {run.who}" if run.who else ""
    console.print(f"{moment(run.started)}{printable(who)}; {run.ending}{spent}", soft_wrap=True)
    console.print()
    for step in run.steps:
        reason = f": {step.reason}" if step.reason else ""
        text = f"{step.subject}: {step.role}: {step.outcome}, {duration(step.seconds)}{reason}"
        if step.outcome != Outcome.UNCHANGED or full:
            console.print(Text(printable(text), style="bold"), soft_wrap=True)
        for change in run.changes:
            if (change.subject, change.role) == (step.subject, step.role):
                _print_change(console, change, full=full)
    if run.seconds is None and run.begun:
        console.print(Text(printable(f"begun last: {run.begun[-1]}"), style="yellow"), soft_wrap=True)
    same = sum(each.outcome == Outcome.UNCHANGED for each in run.steps)
    if same and not full:
        console.print(Text(f"{count(same, 'step')} unchanged", style="dim"))
    for effect in run.effects:
        console.print(
            printable(f"{effect.system}: {effect.effect}: {effect.verdict}, {duration(effect.seconds)}"),
            soft_wrap=True,
        )
        _print_output(console, effect.output, failed=effect.verdict != "done", full=full)
    if run.problems:
        console.print()
        print_diagnostics(console, run.problems)


def _print_change(console: Console, change: ChangeRecord, *, full: bool) -> None:
    signs = glyphs(console.encoding)
    head = f"  {change.key}: {change.verdict}, {duration(change.seconds)}"
    console.print(Text(printable(head), style="red" if change.verdict != "done" else ""), soft_wrap=True)
    for each in change.fields:
        if is_text(each.old) or is_text(each.new):
            console.print(Text(f"      {each.op} {printable(each.path)}"), soft_wrap=True)
            for sign, line in text_diff(each, full=full):
                console.print(
                    Text(f"        {sign if sign != '@' else ' '} {line}", style="dim"), soft_wrap=True
                )
        else:
            line = field_line(each, console.width - 8, signs, full=full)
            console.print(Text(f"      {each.op} {line}"), soft_wrap=True)
    _print_output(console, change.output, failed=change.verdict != "done", full=full)


def _print_output(console: Console, output: str, *, failed: bool, full: bool) -> None:
    """Print output: with `full` all that was kept, otherwise the last lines of what failed."""
    lines = [printable(line).rstrip() for line in output.splitlines()]
    hidden = 0 if full else max(len(lines) - LAST, 0) if failed else len(lines)
    if hidden and failed:
        lines.insert(hidden, f"({count(hidden, 'more line')} before this one: --full shows all)")
    for line in lines[hidden:]:
        console.print(Text(f"      | {line}", style="dim"), soft_wrap=True)
