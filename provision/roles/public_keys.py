"""The public key of a login, which roles write to guests."""

from __future__ import annotations

from pathlib import Path

from provision.inventory import Inventory
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError


def public_key(inventory: Inventory, key: Path) -> str:
    """Return the line of the public key beside a private key file (`KEY.pub`).

    Raises:
        UsageError: `PUBLIC_KEY_MISSING`: it cannot be read.
    """
    public = key.with_name(f"{key.name}.pub")
    try:
        return public.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no text"
        raise UsageError(
            Diagnostic(
                "PUBLIC_KEY_MISSING",
                f"{public} cannot be read: {reason}",
                source=inventory.source(("access", "key")),
                remedy=f"ssh-keygen -y -f {key} > {public}",
            )
        ) from None
