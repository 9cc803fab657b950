"""The key that hashes secrets in saved plans: the same for plan and apply, and not in the plan's file."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

from provision.engine.run_lock import usable
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError
from provision.values.whole_file import make_private_folder, write_whole

VARIABLE = "PROVISION_PLAN_KEY"
_SHORTEST = 16
"""Characters: a shorter key could be tried together with the secrets."""


def plan_key(folder: Path) -> bytes:
    """Return the key: from the environment, else from the state folder, where it is made once.

    Raises:
        UsageError: the variable is too short, or the folder cannot keep a key.
    """
    given = os.environ.get(VARIABLE, "")
    if given:
        if len(given) < _SHORTEST:
            summary = f"{VARIABLE} is too short: {len(given)} characters (at least {_SHORTEST})"
            raise UsageError(Diagnostic("PLAN_KEY_SHORT", summary, remedy="openssl rand -hex 32"))
        return hashlib.sha256(given.encode("utf-8", "surrogateescape")).digest()
    path = folder / "plan.key"
    try:
        with usable(folder):
            if not path.is_file():
                make_private_folder(path.parent)
                write_whole(path, secrets.token_hex(32))
            return bytes.fromhex(path.read_text().strip())
    except ValueError:
        summary = f"{path} is damaged"
        raise UsageError(Diagnostic("PLAN_KEY_DAMAGED", summary, remedy=f"rm {path}")) from None
