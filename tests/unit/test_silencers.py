"""Honest checks: what silences a checker, or skips a test, says why beside it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SILENCER = re.compile(r"#\s*(?:noqa: ?[A-Z0-9, ]+|noqa|type: ignore(?:\[[^]]*\])?)(?P<reason>.*)$")
SKIP = re.compile(r"pytest\.mark\.(?:skip|skipif|xfail)\(")
REASON = re.compile(r"[a-z]{3}|JSON")


def unexplained(text: str) -> list[str]:
    """Return the lines that silence something without a reason."""
    found = []
    for line in text.splitlines():
        silencer = SILENCER.search(line)
        if silencer is not None and not REASON.search(silencer["reason"]):
            found.append(line.strip())
        if SKIP.search(line) and "reason=" not in line:
            found.append(line.strip())
    return found


def test_every_silencer_has_its_reason() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {line}"
        for folder in ("provision", "tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        if path != Path(__file__)
        for line in unexplained(path.read_text())
    }
    assert found == set()


def test_a_silencer_without_a_reason_is_seen() -> None:
    assert unexplained("x = 1  # type: ignore[misc]")
    assert unexplained("import x  # noqa: F401")
    assert not unexplained("import x  # noqa: F401 - for its effect")
    assert not unexplained("x = 1  # type: ignore[misc]  # only closed")
    assert unexplained("@pytest.mark.skipif(True)")
