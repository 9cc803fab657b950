"""Names of systems and units, as roles, resources and checks share them."""

from __future__ import annotations

import re
from functools import lru_cache

ROUTER = "router"

DAEMONS = {"chrony": "chrony.service", "timesyncd": "systemd-timesyncd.service"}
"""Units of the time daemons by the name of their package."""

_UNIT = re.compile(r"[A-Za-z0-9:_.@-]{1,255}")
_UNIT_KINDS = (
    "service", "socket", "timer", "mount", "target", "path", "slice", "swap", "automount", "device",
)  # fmt: skip


def ssh(subject: str) -> str:
    """Return the system of a host by SSH."""
    return f"{subject}/ssh"


def marker(path: str, node: str) -> str:
    """Return the file by which a node shows the others that it sees the same storage."""
    return f"{path.rstrip('/')}/.provision-{node}"


@lru_cache(maxsize=4096)
def checked_unit(name: str) -> str:
    """Return a unit's full name; `.service` may be left out.

    Raises:
        ValueError: it is not a unit name.
    """
    if _UNIT.fullmatch(name) is None or name.startswith("-"):
        raise ValueError(f"{name!r} is not a unit name")
    return name if "." in name and name.rpartition(".")[2] in _UNIT_KINDS else f"{name}.service"
