"""What the pages show of commands is what they print today, on models of the sites."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generators.console import BLOCK, SCRIPT, prepare, refreshed
from docs.generators.pages import PAGES

RUN = [
    page for page in PAGES for text in [page.read_text("utf-8")] if BLOCK.search(text) or SCRIPT.search(text)
]


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_outputs_of_a_page_are_what_its_commands_print(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert refreshed(text) == text, "run: make docs"


def test_the_starter_inventory_converges_as_a_whole(tmp_path: Path) -> None:
    rehearsal = prepare("starter", "applied", tmp_path)
    assert rehearsal.run("provision plan starter.yaml").startswith("No changes.")
