"""Texts of a host as YAML: whatever they hold, they stay one value or one comment."""

from __future__ import annotations

import json


def quoted(value: str) -> str:
    """Return a value as double-quoted YAML, which has JSON's escapes but no pairs of surrogates.

    What no terminal shows is escaped, and what is no character becomes U+FFFD.
    """
    text = value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return "".join(
        char if char.isprintable() else f"\\U{ord(char):08x}" for char in json.dumps(text, ensure_ascii=False)
    )


def comment(text: str) -> str:
    """Return a comment of one line."""
    return "# " + "".join(char if char.isprintable() else " " for char in text)
