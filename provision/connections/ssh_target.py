"""The SSH server that an endpoint means: ~/.ssh/config, ProxyJump and identity files, resolved by fabric."""

from __future__ import annotations

import getpass
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from provision.connections.contracts import SshEndpoint

PORT = 22


@dataclass(frozen=True, slots=True)
class Target:
    """One SSH server, the target itself or a jump host.

    Args:
        host: name or address to connect to.
        name: name under which its host key is known.
        port: TCP port.
        user: login.
        keys: private key files, tried in this order.
        only_keys: use no agent and no default keys (a key was given).
        known_hosts: files with known host keys.
        jump: the server before it, None for a direct connection.
        command: ProxyCommand, empty for none.
        accept: as `SshEndpoint.accept`; empty for jump hosts.
    """

    host: str
    name: str
    port: int
    user: str
    keys: tuple[Path, ...]
    only_keys: bool
    known_hosts: tuple[Path, ...]
    jump: Target | None = None
    command: str = ""
    accept: str = ""


def user_config() -> Path:
    """Return the user's own SSH configuration file."""
    return Path.home() / ".ssh" / "config"


def default_known_hosts() -> tuple[Path, ...]:
    """Return the files that ssh(1) reads."""
    ssh = Path.home() / ".ssh"
    return (ssh / "known_hosts", ssh / "known_hosts2", Path("/etc/ssh/ssh_known_hosts"))


def resolve(endpoint: SshEndpoint) -> Target:
    """Return the server that an endpoint means; fabric is imported only if there is something to resolve."""
    files = (endpoint.known_hosts,) if endpoint.known_hosts is not None else default_known_hosts()
    keys = (endpoint.key,) if endpoint.key is not None else ()
    if endpoint.jump is None and not user_config().is_file():
        return Target(
            endpoint.address,
            endpoint.address,
            endpoint.port or PORT,
            endpoint.user,
            keys,
            bool(keys),
            files,
            accept=endpoint.accept,
        )
    return replace(_resolve_by_configuration(endpoint, keys), accept=endpoint.accept)


def _resolve_by_configuration(endpoint: SshEndpoint, keys: tuple[Path, ...]) -> Target:
    import fabric  # noqa: PLC0415 - slow, and seldom needed

    path = user_config()
    config = fabric.Config(ssh_config=_ssh_config(path, path.stat().st_mtime_ns if path.is_file() else 0))
    gateway = None
    for hop in (endpoint.jump or "").split(","):
        if hop.strip():
            gateway = fabric.Connection(hop.strip(), config=config, gateway=gateway)
    connection = fabric.Connection(
        endpoint.address, user=endpoint.user, port=endpoint.port, config=config, gateway=gateway
    )
    return _target(connection, endpoint.address, keys, endpoint.known_hosts)


def _target(connection: Any, name: str, keys: tuple[Path, ...], known_hosts: Path | None) -> Target:
    options = connection.ssh_config or {}
    files = default_known_hosts()
    if known_hosts is not None:
        files = (known_hosts,)
    elif "userknownhostsfile" in options:
        files = tuple(Path(name).expanduser() for name in options["userknownhostsfile"].split())
    configured = connection.connect_kwargs.get("key_filename") or ()
    if isinstance(configured, str):
        configured = (configured,)
    identities = keys or tuple(Path(name).expanduser() for name in configured)
    gateway = connection.gateway
    alias = options.get("hostkeyalias")
    return Target(
        host=str(connection.host),
        name=alias or (name if not options.get("hostname") else str(connection.host)),
        port=int(connection.port or PORT),
        user=str(connection.user or getpass.getuser()),
        keys=identities,
        only_keys=bool(keys) or (bool(identities) and options.get("identitiesonly", "no") == "yes"),
        known_hosts=files,
        jump=None
        if gateway is None or isinstance(gateway, str)
        else _target(gateway, str(gateway.original_host), (), known_hosts),
        command=gateway if isinstance(gateway, str) else "",
    )


@lru_cache(maxsize=4)
def _ssh_config(path: Path, stamp: int) -> Any:
    import paramiko  # noqa: PLC0415 - slow

    del stamp  # part of the cache's key: a changed file is read again
    return paramiko.SSHConfig.from_path(str(path)) if path.is_file() else paramiko.SSHConfig()
