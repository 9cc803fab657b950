"""How a run ended: problems by cause, counts, what took longest, and the one command to run next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from provision.engine.model import ConsentNeed, RunReport, StepReport
from provision.report.plan import hit
from provision.report.problems import print_diagnostics
from provision.report.style import count, duration, printable
from provision.values.consent import Consent
from provision.values.outcomes import ExitCode, Outcome

if TYPE_CHECKING:
    from rich.console import Console

SLOWEST = 3
_STYLES = {
    Outcome.CHANGED: "yellow",
    Outcome.WAITING: "bold yellow",
    Outcome.FAILED: "bold red",
    Outcome.BLOCKED: "red",
    Outcome.UNREACHED: "red",
    Outcome.LATE: "yellow",
}
_LISTED = (Outcome.FAILED, Outcome.WAITING, Outcome.BLOCKED, Outcome.UNREACHED, Outcome.LATE)


def print_summary(console: Console, report: RunReport, *, command: str, debug: bool = False) -> None:
    """Print how a run ended.

    Args:
        console: where to.
        report: what the engine says.
        command: the command line that was run, without flags (`provision apply inventories/lab.yaml`).
        debug: also print round trips.
    """
    if not report.steps and report.exit_code == ExitCode.WAITING:
        console.print("Not confirmed: nothing was done.")
        return
    print_diagnostics(console, (each for step in report.steps for each in step.diagnostics))
    for line in lines(report, debug=debug):
        console.print(line, soft_wrap=True)
    following = next_command(report, command)
    if following:
        console.print(Text.assemble(("Next: ", "bold"), following), soft_wrap=True)


def lines(report: RunReport, *, debug: bool = False) -> list[Text]:
    """Return the lines of the summary, without problems and without the next command."""
    result: list[Text] = []
    for outcome in _LISTED:
        result += _listed(outcome, [each for each in report.steps if each.outcome is outcome])
    result += consents(report.consents_missing)
    if result:
        result.append(Text())
    counts = {outcome: sum(each.outcome is outcome for each in report.steps) for outcome in Outcome}
    done = counts[Outcome.UNCHANGED] + counts[Outcome.CHANGED]
    parts = [f"{done} done ({counts[Outcome.CHANGED]} changed)"]
    parts += [f"{counts[each]} {each}" for each in _LISTED if counts[each]]
    head = "Interrupted" if report.interrupted else "Ended"
    result.append(
        Text.assemble(
            (f"{head} after {duration(report.seconds)}: ", "bold"),
            (", ".join(parts), _worst_style(counts)),
            f" (run {printable(report.run)})",
        )
    )
    slow = sorted((each for each in report.steps if each.seconds >= 1), key=lambda each: -each.seconds)[
        :SLOWEST
    ]
    if slow:
        text = ", ".join(f"{printable(each.id)} {duration(each.seconds)}" for each in slow)
        result.append(Text(f"Slowest: {text}"))
    if debug and report.trips:
        text = ", ".join(f"{printable(name)} {number}" for name, number in sorted(report.trips.items()))
        result.append(Text(f"Round trips: {text}"))
    return result


def consents(missing: Sequence[ConsentNeed]) -> list[Text]:
    """Return what waits for consent, and how to give it."""
    result: list[Text] = []
    for need in missing:
        how = (
            "the inventory's policy says never"
            if need.consent is Consent.NEVER
            else f"give --allow {need.effect.cls}"
        )
        result.append(
            Text.assemble(
                "  ", (f"{need.effect.cls}", "bold yellow"), f" of {hit(need)} waits for consent: {how}"
            )
        )
    return result


def next_command(report: RunReport, command: str) -> str:
    """Return the one command that makes sense after this run.

    Args:
        report: how the run ended.
        command: what was run, without flags.
    """
    askable = sorted(
        {need.effect.cls for need in report.consents_missing if need.consent is not Consent.NEVER}
    )
    failed = [each for each in report.steps if each.outcome is Outcome.FAILED]
    if report.exit_code == ExitCode.INTERRUPTED:
        return f"{command}   (goes on where this run ended)"
    if failed:
        return f"provision show {report.run} --full   (the whole output), then {command}"
    if askable:
        return " ".join([command, *(f"--allow {cls}" for cls in askable)])
    if report.exit_code in {ExitCode.ERROR, ExitCode.WAITING}:
        return f"{command}   (goes on where this run ended)"
    verb, _, rest = command.removeprefix("provision ").partition(" ")
    if report.exit_code in {ExitCode.DONE, ExitCode.VERIFY_FAILED} and verb == "apply":
        return f"provision verify {rest}"
    return ""


def _listed(outcome: Outcome, steps: Iterable[StepReport]) -> list[Text]:
    """Return steps of one outcome, grouped by cause."""
    by_reason: dict[str, list[str]] = {}
    for each in steps:
        reason = each.reason or (each.diagnostics[0].summary if each.diagnostics else "")
        by_reason.setdefault(reason, []).append(str(each.id))
    result = []
    for reason, names in by_reason.items():
        shown = ", ".join(printable(each) for each in names[:6])
        more = f" and {count(len(names) - 6, 'more step')}" if len(names) > 6 else ""  # noqa: PLR2004 - as many as fit
        tail = f": {printable(reason)}" if reason else ""
        result.append(Text.assemble("  ", (f"{outcome:<9}", _STYLES[outcome]), f" {shown}{more}{tail}"))
    return result


def _worst_style(counts: dict[Outcome, int]) -> str:
    for outcome in (Outcome.FAILED, Outcome.UNREACHED, Outcome.BLOCKED, Outcome.WAITING, Outcome.LATE):
        if counts[outcome]:
            return _STYLES[outcome]
    return "green"
