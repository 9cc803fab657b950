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
PASSED, FAILED, UNKNOWN = "passed", "failed", "unknown"
_STYLES = {PASSED: "green", FAILED: "bold red", UNKNOWN: "yellow"}
_WORDS = {PASSED: "ok", FAILED: "FAILED", UNKNOWN: "unknown"}


class Check(Protocol):
    """One result, as verification and journal hand it over; `outcome` is passed, failed or unknown."""

    @property
    def name(self) -> str: ...  # noqa: D102 - what is claimed
    @property
    def subject(self) -> str: ...  # noqa: D102 - whom it is about
    @property
    def outcome(self) -> str: ...  # noqa: D102 - see the class
    @property
    def message(self) -> str: ...  # noqa: D102 - the evidence, why it is unknown, or a remark
    @property
    def excused(self) -> bool: ...  # noqa: D102 - unknown without fault
    @property
    def seconds(self) -> float: ...  # noqa: D102 - how long it took


def print_checks(
    console: Console, checks: Sequence[Check], *, seconds: float = 0.0, full: bool = False
) -> None:
    """Print results by subject: what passed only as a number unless `full` or remarked on.

    Args:
        console: where to.
        checks: all results.
        seconds: time of the whole verification.
        full: also print every check that passed.
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
    result: list[Text] = []
    widest = max(len(printable(subject)) for subject in by_subject)
    for subject, results in by_subject.items():
        passed = sum(check.outcome == PASSED for check in results)
        total = f"{passed} of {count(len(results), 'check')} passed"
        style = "green" if passed == len(results) else ""
        result.append(Text.assemble((f"{printable(subject):<{widest}}", "bold"), "  ", (total, style)))
        for group in _by_cause(results, full=full):
            if group[0].outcome != PASSED or group[0].message or full:
                name = group[0].name if len(group) == 1 else count(len(group), "check")
                result += check_lines(group[0], width, name=name)
    counts = {outcome: sum(check.outcome == outcome for check in checks) for outcome in _STYLES}
    parts = [f"{counts[PASSED]} passed"]
    parts += [
        f"{counts[outcome]} {_WORDS[outcome].lower()}" for outcome in (FAILED, UNKNOWN) if counts[outcome]
    ]
    style = _STYLES[FAILED if counts[FAILED] else UNKNOWN if counts[UNKNOWN] else PASSED]
    return [*result, Text(), Text(f"Verified in {duration(seconds)}: {', '.join(parts)}", style=style)]


def check_lines(check: Check, width: int, *, name: str = "", when: str = "") -> list[Text]:
    """Return one check with its evidence below it.

    Args:
        check: the result.
        width: columns of the terminal.
        name: what is written for its name; its own if empty.
        when: time of day at which it began, or empty.
    """
    word = _WORDS.get(check.outcome, check.outcome) + (" (no fault)" if check.excused else "")
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
        is_alone = full or not check.message or check.outcome == PASSED
        cause = (check.outcome, check.excused, check.message, number if is_alone else None)
        groups.setdefault(cause, []).append(check)
    result: list[list[Check]] = []
    for group in groups.values():
        result += [group] if len(group) >= MANY else [[check] for check in group]
    return result
