"""Results of verification as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from rich.text import Text

from provision.report.problems import wrap
from provision.report.style import count, duration, printable

if TYPE_CHECKING:
    from rich.console import Console

MANY = 3
"""Checks with one cause from which on they are shown as one."""
INDENT = 15
"""Columns before the evidence of a check."""
PROVEN, FAILED, TRIVIAL, UNKNOWN, NOT_RUN = "proven", "failed", "trivial", "unknown", "not-run"
OUTCOMES = (PROVEN, FAILED, TRIVIAL, UNKNOWN, NOT_RUN)
_STYLES = {PROVEN: "green", FAILED: "bold red", TRIVIAL: "", UNKNOWN: "yellow", NOT_RUN: "yellow"}
_WORDS = {PROVEN: "proven", FAILED: "FAILED", NOT_RUN: "not run"}


class Check(Protocol):
    """One result, as verification and journal hand it over; `outcome` is one of OUTCOMES."""

    @property
    def name(self) -> str: ...  # noqa: D102 - what is claimed
    @property
    def subject(self) -> str: ...  # noqa: D102 - whom it is about
    @property
    def outcome(self) -> str: ...  # noqa: D102 - see the class
    @property
    def message(self) -> str: ...  # noqa: D102 - the evidence, why nothing is proven, or a remark
    @property
    def excused(self) -> bool: ...  # noqa: D102 - nothing proven, without fault
    @property
    def seconds(self) -> float: ...  # noqa: D102 - how long it took


def print_checks(
    console: Console, checks: Sequence[Check], *, seconds: float = 0.0, full: bool = False
) -> None:
    """Print results by subject: what is proven only as a number unless `full` or remarked on.

    Args:
        console: where to.
        checks: all results.
        seconds: time of the whole verification.
        full: also print every check that is proven.
    """
    for line in lines(checks, console.width, seconds=seconds, full=full):
        console.print(line, soft_wrap=True)


def lines(checks: Sequence[Check], width: int, *, seconds: float = 0.0, full: bool = False) -> list[Text]:
    """Return the lines of the table."""
    if not checks:
        return [Text("No check applies: the inventory declares nothing to verify.", style="yellow")]
    by_subject: dict[str, list[Check]] = {}
    for check in checks:
        by_subject.setdefault(check.subject, []).append(check)
    left_out = {
        subject: results for subject, results in by_subject.items() if all(map(_is_left_out, results))
    }
    result: list[Text] = []
    widest = max(len(printable(subject)) for subject in by_subject)
    for subject, results in by_subject.items():
        if subject in left_out and len(left_out) >= MANY:
            continue
        style = style_of(results)
        result.append(
            Text.assemble((f"{printable(subject):<{widest}}", "bold"), "  ", (proven_of(results), style))
        )
        for group in _by_cause(results, full=full):
            if group[0].outcome != PROVEN or group[0].message or full:
                name = group[0].name if len(group) == 1 else count(len(group), "check")
                result += check_lines(group[0], width, name=name)
    if len(left_out) >= MANY:
        result.append(
            Text(f"{count(len(left_out), 'subject')} left out: nothing was checked", style="yellow")
        )
    total = f"Verified in {duration(seconds)}: {totals(checks)}"
    return [*result, Text(), Text(total, style=style_of(checks))]


def _is_left_out(check: Check) -> bool:
    return check.outcome == NOT_RUN


def proven_of(checks: Sequence[Check]) -> str:
    """Return how many checks are proven, with their denominator."""
    return f"{sum(check.outcome == PROVEN for check in checks)} of {count(len(checks), 'check')} proven"


def totals(checks: Sequence[Check]) -> str:
    """Return how many checks ended in which way, all five and their denominator."""
    numbers = {outcome: sum(check.outcome == outcome for check in checks) for outcome in OUTCOMES[1:]}
    parts = [f"{number} {_word(outcome).lower()}" for outcome, number in numbers.items()]
    return ", ".join((proven_of(checks), *parts))


def _word(outcome: str) -> str:
    return _WORDS.get(outcome, outcome)


def style_of(checks: Sequence[Check]) -> str:
    """Return the style of a sum: green only where all was looked at and each subject has a proven check."""
    outcomes = {check.outcome for check in checks}
    for outcome in (FAILED, UNKNOWN, NOT_RUN):
        if outcome in outcomes:
            return _STYLES[outcome]
    proven = {check.subject for check in checks if check.outcome == PROVEN}
    is_proven = bool(checks) and all(check.subject in proven for check in checks)
    return _STYLES[PROVEN] if is_proven else _STYLES[UNKNOWN]


def check_lines(check: Check, width: int, *, name: str = "", when: str = "") -> list[Text]:
    """Return one check with its evidence below it.

    Args:
        check: the result.
        width: columns of the terminal.
        name: what is written for its name; its own if empty.
        when: time of day at which it began, or empty.
    """
    word = _word(check.outcome) + (" (no fault)" if check.excused else "")
    subject = f"{printable(check.subject)}: " if when else ""
    text = f"{when}  {subject}" if when else ""
    heading = Text.assemble(
        "  ", (f"{word:<11}", _STYLES.get(check.outcome, "")), f"  {text}{printable(name or check.name)}"
    )
    if not check.message:
        return [heading]
    evidence = wrap([printable(line) for line in check.message.splitlines()], width - INDENT)
    return [heading, *(Text(" " * INDENT + line, style="dim") for line in evidence)]


def _by_cause(checks: Sequence[Check], *, full: bool) -> list[list[Check]]:
    """Return checks that ended alike for the same reason together, where there are many of them."""
    groups: dict[tuple[object, ...], list[Check]] = {}
    for number, check in enumerate(checks):
        is_alone = full or not check.message or check.outcome == PROVEN
        cause = (check.outcome, check.excused, check.message, number if is_alone else None)
        groups.setdefault(cause, []).append(check)
    result: list[list[Check]] = []
    for group in groups.values():
        result += [group] if len(group) >= MANY else [[check] for check in group]
    return result
