"""Honest results: a skip that nobody reviewed is red."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import settings

# readline, which pytest imports, exports the width of the terminal to processes of pytest-xdist
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)

# Few examples in each run of the unit tests; many in `make model` (--hypothesis-profile=deep).
settings.register_profile("quick", max_examples=8, deadline=None, database=None)
settings.register_profile("deep", max_examples=200, deadline=None)
settings.load_profile("quick")

REVIEWED = [
    re.compile(line)
    for line in (Path(__file__).parent / "reviewed_skips.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
UNREVIEWED: list[str] = []


def pytest_configure() -> None:
    UNREVIEWED.clear()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Hear of each test where the run's end is decided: with xdist that is not where the test ran."""
    if report.skipped and not hasattr(report, "wasxfail"):
        _review(report.nodeid, report.longrepr)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A whole file may be skipped, too."""
    if report.skipped:
        _review(report.nodeid, report.longrepr)


def _review(name: str, longrepr: object) -> None:
    reason = str(longrepr[2] if isinstance(longrepr, tuple) else longrepr).removeprefix("Skipped: ")
    line = f"{name}: {reason}"
    if line not in UNREVIEWED and not any(each.fullmatch(reason) for each in REVIEWED):
        UNREVIEWED.append(line)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if UNREVIEWED and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in UNREVIEWED:
        terminalreporter.write_line(
            f"skipped for a reason that is not in tests/reviewed_skips.txt: {line}", red=True
        )
