from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PICTURES = re.findall(r"!\[([^\]]+)\]\((docs/images/[^)]+)\)", README)


def test_the_readme_shows_a_plan_a_run_and_a_report_and_describes_them() -> None:
    assert {Path(file).stem for _, file in PICTURES} == {"plan", "run", "report"}
    assert all(len(description) > 20 for description, _ in PICTURES)


@pytest.mark.parametrize("file", [file for _, file in PICTURES if file.endswith(".svg")])
def test_a_picture_loads_nothing_from_another_server(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    assert "@font-face" not in text
    assert set(re.findall(r'(?:href|src|url)\s*[=(]\s*"?(https?://[^"\s)]+)', text)) == set()
    assert "provision" in text
