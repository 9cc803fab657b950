"""Words of messages that a reader with basic English stumbles over."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "provision"
STUMBLE = re.compile(
    r"""f?"(?!"")[^"\n]*?"""
    r"""(?:(?<!there )\b(?:is|are) no (?!longer\b)\w+|\b(?:anew|meanwhile|owed|shall)\b(?!=))""",
    re.IGNORECASE,
)
"""`is no X` is `is not a X`; the others are old words for `again`, `until then`, `still needed`, `must`."""


def stumbles(text: str) -> list[str]:
    """Return the lines of code whose strings have such words; docstrings and comments are not messages."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if not line.startswith(('"""', "#", "r'")) and STUMBLE.search(line)]


def test_messages_have_no_old_words() -> None:
    found = {
        str(path.relative_to(PACKAGE)): lines
        for path in PACKAGE.rglob("*.py")
        if (lines := stumbles(path.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_an_old_word_is_found() -> None:
    assert stumbles('raise ValueError(f"{name} is no VM")\n    "to make it anew on"\n') != []
    assert stumbles('"""It is no VM."""\n# anew\nsay("there is no VM", "it is no longer there")\n') == []
