from __future__ import annotations

import re
from pathlib import Path

from provision.values.outcomes import PRECEDENCE, ExitCode

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_of_exit_codes_has_them_all_in_their_precedence() -> None:
    page = (DOCS / "exit-codes.md").read_text(encoding="utf-8")
    assert {int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)} == set(ExitCode)
    order = re.search(r"first of this row wins: ([0-9, ]+)\.", page)
    assert order is not None
    assert [int(word) for word in order[1].split(",")] == list(PRECEDENCE)
