"""The page of reports names each of the 40, and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \| (?:`([\w/.]+)::(\w+)`|none) \|$", re.MULTILINE)
WITHOUT_A_TEST = {"7", "28", "34", "36", "37", "39"}
"""Reports that concern what provision does not do; this set only shrinks."""


def rows() -> list[tuple[str, ...]]:
    return ROW.findall((ROOT / "docs/proxmox-reports.md").read_text("utf-8"))


def test_each_report_has_its_row_in_order() -> None:
    assert [row[0] for row in rows()] == [str(number) for number in range(1, 41)]


def test_each_named_test_of_a_report_exists() -> None:
    missing = [
        f"{path}::{name}"
        for _, _, _, path, name in rows()
        if path and f"\ndef {name}(" not in (ROOT / path).read_text("utf-8")
    ]
    assert missing == []


def test_a_report_without_a_test_is_a_reviewed_one() -> None:
    assert {row[0] for row in rows() if not row[3]} == WITHOUT_A_TEST
