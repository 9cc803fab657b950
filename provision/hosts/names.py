"""Names of systems that are reached by SSH."""

from __future__ import annotations

ROUTER = "router"


def ssh(subject: str) -> str:
    """Return the system of a host by SSH."""
    return f"{subject}/ssh"
