"""The pages of reports name each of them, and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \| (?:`([\w/.]+)::(\w+)`|none) \|$", re.MULTILINE)
PAGES = {
    "proxmox-reports.md": (40, {"7", "37"}),
    "cluster-reports.md": (44, set()),
    "cluster-failures.md": (60, {"11", "38", "48", "49", "54", "55", "57"}),
}
"""How many reports a page has, and those that concern what provision does not do; the sets only shrink."""


def rows(page: str) -> list[tuple[str, ...]]:
    return ROW.findall((ROOT / "docs" / page).read_text("utf-8"))


@pytest.mark.parametrize("page", PAGES)
def test_each_report_has_its_row_in_order(page: str) -> None:
    assert [row[0] for row in rows(page)] == [str(number + 1) for number in range(PAGES[page][0])]


@pytest.mark.parametrize("page", PAGES)
def test_each_named_test_of_a_report_exists(page: str) -> None:
    missing = [
        f"{path}::{name}"
        for _, _, _, path, name in rows(page)
        if path and f"\ndef {name}(" not in (ROOT / path).read_text("utf-8")
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_a_report_without_a_test_is_a_reviewed_one(page: str) -> None:
    assert {row[0] for row in rows(page) if not row[3]} == PAGES[page][1]
