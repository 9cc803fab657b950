"""The pages of reports name each of them, and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \| `([\w/.]+)::(\w+)` \|$", re.MULTILINE)
INPUTS = [f"{number:02}" for number in (5, 6, 7, 9, 10, *range(12, 29))]
"""Numbers of the inputs that were taken from public reports and tried on machines."""
PAGES = {"proxmox-reports.md": 40, "cluster-reports.md": 50, "cluster-failures.md": 60}
"""How many reports a page has; each has a test."""


def rows(page: str) -> list[tuple[str, ...]]:
    return ROW.findall((ROOT / "docs" / page).read_text("utf-8"))


def _has_test(path: str, name: str) -> bool:
    return re.search(rf"(?m)^ *def {name}\(", (ROOT / path).read_text("utf-8")) is not None


@pytest.mark.parametrize("page", PAGES)
def test_each_report_has_its_row_in_order(page: str) -> None:
    assert [row[0] for row in rows(page)] == [str(number + 1) for number in range(PAGES[page])]


@pytest.mark.parametrize("page", PAGES)
def test_each_named_test_of_a_report_exists(page: str) -> None:
    missing = [f"{path}::{name}" for _, _, _, path, name in rows(page) if not _has_test(path, name)]
    assert missing == []


def test_each_input_from_a_report_has_its_rule_and_its_test() -> None:
    inputs = [row for row in rows("reliability.md") if row[3]]
    assert [row[0] for row in inputs] == INPUTS
    assert [f"{path}::{name}" for _, _, _, path, name in inputs if not _has_test(path, name)] == []
