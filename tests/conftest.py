"""Honest results: a skip that nobody reviewed is red."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

# Few examples in each run of the unit tests; many in `make model` (--hypothesis-profile=deep).
settings.register_profile("quick", max_examples=8, deadline=None, database=None)
settings.register_profile("deep", max_examples=200, deadline=None)
settings.load_profile("quick")

REVIEWED = [
    re.compile(line)
    for line in (Path(__file__).parent / "reviewed_skips.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
UNREVIEWED = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[UNREVIEWED] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep the reasons of skips that are not in the list."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        _review(item.config, item.nodeid, report.longrepr)
    return report


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A whole file may be skipped, too: it shows only here, and the session has the configuration."""
    if report.skipped:
        SKIPPED_FILES.append((report.nodeid, report.longrepr))


SKIPPED_FILES: list[tuple[str, object]] = []


def _review(config: pytest.Config, name: str, longrepr: object) -> None:
    reason = str(longrepr[2] if isinstance(longrepr, tuple) else longrepr).removeprefix("Skipped: ")
    if not any(each.fullmatch(reason) for each in REVIEWED):
        config.stash[UNREVIEWED].append(f"{name}: {reason}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    for name, longrepr in SKIPPED_FILES:
        _review(session.config, name, longrepr)
    SKIPPED_FILES.clear()
    if session.config.stash[UNREVIEWED] and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash[UNREVIEWED]:
        terminalreporter.write_line(
            f"skipped for a reason that is not in tests/reviewed_skips.txt: {line}", red=True
        )
