"""What summaries of tests tell: stages in their order, whatever order their reports came in; slow tests."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import chosen, stages
from tests.unit.conftest import slowest


def report(file: str, name: str, when: str, start: float, outcome: str = "passed") -> pytest.TestReport:
    found = pytest.TestReport(
        nodeid=f"tests/e2e/{file}::{name}",
        location=(file, 1, name),
        keywords={},
        outcome=outcome,  # type: ignore[arg-type]  # one of pytest's three words
        longrepr=None,
        when=when,  # type: ignore[arg-type]  # one of pytest's three words
        duration=2.5,
        start=start,
        stop=start + 2.5,
    )
    found.user_properties.append(("PROVISION_TEST_SEED", "42"))
    return found


def test_the_story_comes_first_and_short_stages_are_told_too() -> None:
    reports = [
        report("test_story.py", "test_it_is_destroyed", "call", 50, "failed"),
        report("test_a.py", "test_other", "call", 1),
        report("test_story.py", "test_from_nothing", "call", 12),
        report("test_story.py", "test_from_nothing", "setup", 10),
    ]
    assert list(stages(reports)) == [
        "    7.5 s  test_story.py",
        "      5.0 s  from nothing",
        "      2.5 s  it is destroyed  (failed)",
        "    2.5 s  test_a.py",
        "      2.5 s  other",
    ]
    assert chosen(reports) == ["PROVISION_TEST_SEED=42"]


def test_the_five_slowest_tests_are_named_with_all_that_they_took() -> None:
    reports = [report("test_a.py", f"test_{number}", "call", 0) for number in range(6)]
    reports += [report("test_a.py", "test_5", "setup", 0), report("test_a.py", "test_5", "teardown", 0)]
    told = slowest({"passed": reports[:6], "": reports[6:], "deselected": [object()]})
    assert "the slowest are\n  7.5 s  tests/e2e/test_a.py::test_5\n" in told
    assert told.count("  2.5 s  tests/e2e/test_a.py") == 4
