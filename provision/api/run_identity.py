"""What a run is called, and on whose behalf it acts: written into journal and locks."""

from __future__ import annotations

import getpass
import os
import platform
import secrets
import time


def new_run_id() -> str:
    """Return an id that sorts by time and is unlike any other."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def who() -> str:
    """Return on whose behalf this process acts: user and machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{platform.node() or 'localhost'}"
