"""How a run ended: problems by cause, counts, what took longest, and the one command to run next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from provision.engine.model import ConsentNeed, RunReport, StepReport
from provision.report.plan import affected_subject
from provision.report.problems import print_diagnostics
from provision.report.style import count, duration, printable, say
from provision.values.consent import Consent
from provision.values.outcomes import ExitCode, Outcome

if TYPE_CHECKING:
    from rich.console import Console

SLOWEST = 3
NAMED = 6
"""Steps of one cause that are named."""
INDENT = 12
"""Columns of an outcome, with its margins."""
_STYLES = {
    Outcome.CHANGED: "yellow",
    Outcome.WAITING: "bold yellow",
    Outcome.FAILED: "bold red",
    Outcome.BLOCKED: "red",
    Outcome.UNREACHED: "red",
    Outcome.LATE: "yellow",
}
_LISTED = (Outcome.FAILED, Outcome.WAITING, Outcome.BLOCKED, Outcome.UNREACHED, Outcome.LATE)
RESUMES = "It resumes where this run ended:"


def print_summary(console: Console, report: RunReport, *, command: str, debug: bool = False) -> None:
    """Print how a run ended.

    Args:
        console: where to.
        report: what the engine says.
        command: the command line that was run, without flags (`provision apply inventories/lab.yaml`).
        debug: also print round trips.
    """
    if not report.steps and report.exit_code == ExitCode.WAITING:
        console.print("Not confirmed. Nothing was changed.")
        return
    print_diagnostics(console, (problem for step in report.steps for problem in step.diagnostics))
    for line in lines(report, debug=debug):
        say(console, line, indent=INDENT if line.plain.startswith(" ") else 2)
    for reason, following in next_commands(report, command):
        # The reason and the command have lines of their own, so that the command can be copied whole.
        console.print(Text.assemble(("Next: ", "bold"), reason), soft_wrap=True)
        console.print(Text(f"  {following}", style="bold"), soft_wrap=True)


def lines(report: RunReport, *, debug: bool = False) -> list[Text]:
    """Return the lines of the summary, without problems and without the next command."""
    result: list[Text] = []
    for outcome in _LISTED:
        result += _by_reason(outcome, [step for step in report.steps if step.outcome is outcome])
    result += missing_consents(report.consents_missing)
    if result:
        result.append(Text())
    counts = {outcome: sum(step.outcome is outcome for step in report.steps) for outcome in Outcome}
    well = counts[Outcome.UNCHANGED] + counts[Outcome.CHANGED]
    parts = [f"{well} done ({counts[Outcome.CHANGED]} changed)"]
    parts += [_counted(outcome, report.steps) for outcome in _LISTED if counts[outcome]]
    verb = "Interrupted" if report.interrupted else "Ended"
    result.append(
        Text.assemble(
            (f"{verb} after {duration(report.seconds)}: ", "bold"),
            (", ".join(parts), _worst_style(counts)),
            f" (run {printable(report.run)})",
        )
    )
    slowest = sorted((step for step in report.steps if step.seconds >= 1), key=lambda step: -step.seconds)
    if slowest:
        text = ", ".join(f"{printable(step.id)} {duration(step.seconds)}" for step in slowest[:SLOWEST])
        result.append(Text(f"Slowest: {text}"))
    if debug and report.trips:
        text = ", ".join(f"{printable(system)} {number}" for system, number in sorted(report.trips.items()))
        result.append(Text(f"Round trips: {text}"))
    return result


def missing_consents(needs: Sequence[ConsentNeed]) -> list[Text]:
    """Return what waits for consent, and how to give it."""
    result: list[Text] = []
    for need in needs:
        cls = need.effect.cls
        answer = "the policy of the inventory says never"
        if need.consent is not Consent.NEVER:
            answer = f"give --allow {cls}"
        text = f" of {affected_subject(need)} waits for consent: {answer}"
        result.append(Text.assemble("  ", (f"{cls}", "bold yellow"), text))
    return result


def next_commands(report: RunReport, command: str) -> list[tuple[str, str]]:
    """Return what to run after this run: a reason, and the command line; the first one first.

    Args:
        report: how the run ended.
        command: what was run, without flags.
    """
    classes = sorted(
        {need.effect.cls for need in report.consents_missing if need.consent is not Consent.NEVER}
    )
    has_failed = any(step.outcome is Outcome.FAILED for step in report.steps)
    verb, _, rest = command.removeprefix("provision ").partition(" ")
    if report.exit_code == ExitCode.VERIFY_FAILED and verb == "apply":
        return [("Correct what the checks found, then:", f"provision verify {rest}")]
    if has_failed and report.exit_code != ExitCode.INTERRUPTED:
        return [
            ("See the whole output:", f"provision show {report.run} --full"),
            (f"After the correction, run it again. {RESUMES}", command),
        ]
    if classes and report.exit_code != ExitCode.INTERRUPTED:
        allowed = " ".join(f"--allow {cls}" for cls in classes)
        return [("Give your consent:", f"{command} {allowed}")]
    if report.exit_code in {ExitCode.ERROR, ExitCode.WAITING, ExitCode.INTERRUPTED}:
        return [(RESUMES, command)]
    if report.exit_code == ExitCode.DONE and verb == "apply":
        return [("Verify the result:", f"provision verify {rest}")]
    return []


def _counted(outcome: Outcome, steps: Sequence[StepReport]) -> str:
    """Return how many steps ended in a way, and how many changes they had made before they did."""
    ended = [step for step in steps if step.outcome is outcome]
    made = sum(len(step.changed) for step in ended)
    return f"{len(ended)} {outcome}" + (f" (after {count(made, 'change')})" if made else "")


def _by_reason(outcome: Outcome, steps: Iterable[StepReport]) -> list[Text]:
    """Return steps of one outcome, grouped by cause."""
    by_reason: dict[str, list[str]] = {}
    for step in steps:
        problems = {diagnostic.summary for diagnostic in step.diagnostics}
        # The problem itself is printed above, once.
        reason = "" if step.reason in problems else step.reason
        by_reason.setdefault(reason, []).append(str(step.id))
    result = []
    for reason, names in by_reason.items():
        shown = ", ".join(map(printable, names[:NAMED]))
        more = f" and {count(len(names) - NAMED, 'more step')}" if len(names) > NAMED else ""
        tail = f": {printable(reason)}" if reason else ""
        result.append(Text.assemble("  ", (f"{outcome:<9}", _STYLES[outcome]), f" {shown}{more}{tail}"))
    return result


def _worst_style(counts: dict[Outcome, int]) -> str:
    for outcome in (Outcome.FAILED, Outcome.UNREACHED, Outcome.BLOCKED, Outcome.WAITING, Outcome.LATE):
        if counts[outcome]:
            return _STYLES[outcome]
    return "green"
