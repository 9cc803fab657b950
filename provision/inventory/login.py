"""Plain values that the inventory hands to other layers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Login:
    """How one host is reached by SSH.

    Args:
        address: host address.
        user: login.
        port: TCP port, or None for what ~/.ssh/config says (else 22).
        key: private key file, or None for the agent and ~/.ssh/config.
        jump: jump host, or None.
        known_hosts: file with known keys, or None for the user's own.
        host_key: the one fingerprint (`SHA256:...`) that is accepted, or None.
        sudo: whether users other than root become root.
    """

    address: str
    user: str
    port: int | None
    key: Path | None
    jump: str | None
    known_hosts: Path | None
    host_key: str | None
    sudo: bool = True
