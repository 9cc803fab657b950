"""Checks shell text of the inventory before any host gets it."""

from __future__ import annotations

import subprocess
from functools import lru_cache

_SECONDS = 10.0
_SHOWN = 200


@lru_cache(maxsize=1024)
def syntax_error(text: str) -> str:
    """Return what `sh -n` of the controller says against a shell text; empty if nothing."""
    try:
        result = subprocess.run(
            ["/bin/sh", "-n"],
            input=text.encode("utf-8", "surrogateescape"),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""  # no shell here that could tell; the host's own says it then
    if result.returncode == 0:
        return ""
    words = result.stderr.decode("utf-8", "replace").strip().splitlines()
    return words[0][:_SHOWN] if words else f"sh -n ended with status {result.returncode}"
