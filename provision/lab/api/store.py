"""Files that survive a kill at any moment: written beside and renamed."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file in one step; its mode is right from the first byte."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    # A leftover of a killed process with the same ids may have another mode.
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    beside.replace(path)


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
