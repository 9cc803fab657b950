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
PASSED, FAILED, UNKNOWN = "passed", "failed", "unknown"
_STYLES = {PASSED: "green", FAILED: "bold red", UNKNOWN: "yellow"}
_WORDS = {PASSED: "ok", FAILED: "FAILED", UNKNOWN: "unknown"}


class Check(Protocol):
    """One result, as verification hands it over; `outcome` is passed, failed or unknown."""

    @property
    def name(self) -> str: ...  # noqa: D102 - what is claimed
    @property
    def subject(self) -> str: ...  # noqa: D102 - whom it is about
    @property
    def outcome(self) -> str: ...  # noqa: D102 - see the class
    @property
    def message(self) -> str: ...  # noqa: D102 - what was seen instead, why it cannot be told, or a remark
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


def _by_cause(checks: Sequence[Check], *, full: bool) -> list[list[Check]]:
    """Return checks that ended alike for the same reason together, where there are many of them."""
    groups: dict[tuple[object, ...], list[Check]] = {}
    for number, each in enumerate(checks):
        alone = full or not each.message or each.outcome == PASSED
        cause = (each.outcome, each.excused, each.message, number if alone else None)
        groups.setdefault(cause, []).append(each)
    result: list[list[Check]] = []
    for group in groups.values():
        result += [group] if len(group) >= MANY else [[each] for each in group]
    return result


def _shown(same: Sequence[Check], width: int) -> list[Text]:
    first = same[0]
    word = _WORDS.get(first.outcome, first.outcome) + (" (no fault)" if first.excused else "")
    name = printable(first.name) if len(same) == 1 else count(len(same), "check")
    head = Text.assemble("  ", (f"{word:<11}", _STYLES.get(first.outcome, "")), f"  {name}")
    if not first.message:
        return [head]
    body = wrap([printable(part) for part in first.message.splitlines()], width - 15)
    return [head, *(Text(" " * 15 + part, style="dim") for part in body)]


def lines(checks: Sequence[Check], width: int, *, seconds: float = 0.0, full: bool = False) -> list[Text]:
    """Return the lines of the table."""
    subjects: dict[str, list[Check]] = {}
    for each in checks:
        subjects.setdefault(each.subject, []).append(each)
    result: list[Text] = []
    widest = max((len(printable(each)) for each in subjects), default=0)
    for subject, found in subjects.items():
        passed = sum(each.outcome == PASSED for each in found)
        good = passed == len(found)
        head = f"{passed} of {count(len(found), 'check')} passed"
        result.append(
            Text.assemble((f"{printable(subject):<{widest}}", "bold"), "  ", (head, "green" if good else ""))
        )
        for same in _by_cause(found, full=full):
            if same[0].outcome != PASSED or same[0].message or full:
                result += _shown(same, width)
    counts = {outcome: sum(each.outcome == outcome for each in checks) for outcome in _STYLES}
    parts = [f"{counts[PASSED]} passed"]
    parts += [f"{counts[FAILED]} failed"] if counts[FAILED] else []
    parts += [f"{counts[UNKNOWN]} unknown"] if counts[UNKNOWN] else []
    style = _STYLES[FAILED if counts[FAILED] else UNKNOWN if counts[UNKNOWN] else PASSED]
    if not checks:
        return [
            Text("No check applies: the inventory declares nothing that could be proven.", style="yellow")
        ]
    result += [Text(), Text(f"Verified in {duration(seconds)}: {', '.join(parts)}", style=f"{style}")]
    return result
