"""Files that survive a kill at any moment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from provision.values.whole_file import write_whole


def write_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file in one step, and make its folder; its mode is right from the first byte."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text, mode, lasting=False)


def write_json(path: Path, value: Any, mode: int = 0o644) -> None:
    """Replace a JSON file in one step."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True), mode)


def read_json(path: Path, default: Any) -> Any:
    """Return a JSON file's value, or `default` when there is no file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return default
    return json.loads(text)
