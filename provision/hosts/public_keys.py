"""The public keys that open a node's login: provision's own first, then `access.authorized_keys`."""

from __future__ import annotations

from pathlib import Path

from provision.inventory import Inventory
from provision.inventory.models.node import Node
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError


def public_key_file(key: Path) -> Path:
    """Return the file of the public key that lies beside a private one."""
    return key.with_name(f"{key.name}.pub")


def login_keys(inventory: Inventory, node: Node) -> tuple[str, ...]:
    """Return the lines of authorized_keys(5) for a node's login, each once.

    Our own key is always among them: a guest without it, or a managed list without it, would lock us out.

    Raises:
        UsageError: no key of ours is declared for this login, or its public key cannot be read.
    """
    key = inventory.login(node.name).key
    if key is None:
        raise UsageError(
            Diagnostic(
                "ACCESS_KEY_UNKNOWN",
                f"no key is declared for the login to {node.name}: provision would lock itself out",
                node.name,
                source=inventory.source(("access",)),
                untouched="the login's keys were left as they are",
                remedy="declare access.key, with its .pub beside it; access.authorized_keys are further keys",
            )
        )
    file = public_key_file(key)
    try:
        own = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no text"
        path = ("access", "key") if node.ssh.key is None else ("nodes", node.name, "ssh", "key")
        raise UsageError(
            Diagnostic(
                "PUBLIC_KEY_MISSING",
                f"{file} cannot be read: {reason}",
                node.name,
                source=inventory.source(path),
                remedy=f"make it from the private key: `ssh-keygen -y -f {key} > {file}`",
            )
        ) from None
    return tuple(dict.fromkeys((own, *(inventory.access.authorized_keys or ()))))
