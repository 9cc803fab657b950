"""The keys that are offered to a server, and in which order.

First the configured ones, from the agent where it has them; then the agent's others; then the default files.
ssh(1) offers configured files after the agent's keys, so that a full agent uses up `MaxAuthTries`.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import socket
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from provision.connections.ssh_target import NO_AGENT, Target

if TYPE_CHECKING:
    import paramiko
    from paramiko.agent import AgentSSH

_DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")

_AGENT_SECONDS = 60.0
"""An agent may ask a person to confirm."""

_MAGIC = b"openssh-key-v1\0"
"""How an OpenSSH private key file begins (PROTOCOL.key of OpenSSH); its public key is not encrypted."""


class Identities:
    """An iterator over keys. A key is read only when the server refused the ones before it.

    Args:
        target: whose keys.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._agent: AgentSSH | None = None
        self._keys = self._all_keys()
        self._next: paramiko.PKey | None = None
        self.refusals: list[str] = []
        """What went wrong with which key, for messages."""
        self.unreadable: list[tuple[Path, str]] = []
        """Configured key files that are of no use, and why."""

    def __iter__(self) -> Iterator[paramiko.PKey]:
        return self

    def __next__(self) -> paramiko.PKey:
        if self._next is not None:
            key, self._next = self._next, None
            return key
        return next(self._keys)

    def has_more(self) -> bool:
        """Whether a key is left."""
        if self._next is None:
            self._next = next(self._keys, None)
        return self._next is not None

    def close(self) -> None:
        """Leave the agent."""
        if self._agent is not None:
            self._agent._close()  # type: ignore[attr-defined]  # noqa: SLF001 - the public class knows one agent
            self._agent = None

    def _all_keys(self) -> Iterator[paramiko.PKey]:
        offered: set[bytes] = set()
        for path in self._target.keys:
            for key in self._configured(path):
                if key.asbytes() not in offered:
                    offered.add(key.asbytes())
                    yield key
        if self._target.only_keys:
            return
        for key in self._agent_keys():
            if key.asbytes() not in offered:
                offered.add(key.asbytes())
                yield key
        for name in _DEFAULT_KEYS:
            path = Path.home() / ".ssh" / name
            if path.is_file() and path not in self._target.keys:
                yield from (key for key in self._from_file(path) if key.asbytes() not in offered)

    def _configured(self, path: Path) -> Iterator[paramiko.PKey]:
        """Yield the key that a file names: a private key, or a public one whose private key the agent has."""
        public = _public_blob(path)
        if public is None:
            public = _public_blob(path.with_name(path.name + ".pub"))
        from_agent = [key for key in self._agent_keys() if public is not None and key.asbytes() == public]
        if from_agent:
            yield from_agent[0]
        elif _is_public(path):
            self._useless(path, "the agent does not have the private key of this public key")
        else:
            readable = False
            for key in self._from_file(path, configured=True):
                readable = True
                yield key
            if not readable and public is None:  # it may be any of the agent's keys
                yield from self._agent_keys() if path.is_file() and self._target.only_keys else ()

    def _from_file(self, path: Path, *, configured: bool = False) -> Iterator[paramiko.PKey]:
        import paramiko  # noqa: PLC0415 - slow

        try:
            yield _private_key(path, path.stat().st_mtime_ns)
        except paramiko.PasswordRequiredException:
            self.refusals.append(f"{path}: the key needs a passphrase; load it into ssh-agent")
        except (OSError, ValueError, paramiko.SSHException, paramiko.pkey.UnknownKeyType) as error:
            if configured:
                self._useless(path, str(error))
            else:
                self.refusals.append(f"{path}: {error}")

    def _useless(self, path: Path, why: str) -> None:
        self.unreadable.append((path, why))
        self.refusals.append(f"{path}: {why}")

    def _agent_keys(self) -> tuple[paramiko.PKey, ...]:
        if self._agent is None:
            self._agent = _open_agent(self._target.agent)
        return tuple(self._agent.get_keys())


def _open_agent(name: str) -> AgentSSH:
    """Return the agent behind a socket; one without keys where nothing answers."""
    import paramiko  # noqa: PLC0415 - slow
    from paramiko.agent import AgentSSH  # noqa: PLC0415 - slow

    agent = AgentSSH()
    path = name or os.environ.get("SSH_AUTH_SOCK", "")
    if path and name != NO_AGENT:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_AGENT_SECONDS)
        try:
            connection.connect(str(Path(path).expanduser()))
            agent._connect(connection)  # type: ignore[attr-defined]  # noqa: SLF001 - the public class knows one agent
        except (OSError, paramiko.SSHException):
            with contextlib.suppress(OSError):
                connection.close()
    return agent


def _is_public(path: Path) -> bool:
    return _public_line(_read(path)) is not None


def _public_blob(path: Path) -> bytes | None:
    """Return the public key in a file in its wire form, also of a private key with a passphrase."""
    data = _read(path)
    return _public_line(data) or _public_part(data)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(64 * 1024)
    except OSError:
        return b""


def _public_line(data: bytes) -> bytes | None:
    """Return the key of a line like `ssh-ed25519 AAAA... comment`."""
    for line in data.splitlines():
        words = line.split()
        if len(words) < 2 or line.startswith((b"#", b"-")):  # noqa: PLR2004 - type and key
            continue
        with contextlib.suppress(binascii.Error, ValueError):
            blob = base64.b64decode(words[1], validate=True)
            if blob[4 : 4 + len(words[0])] == words[0]:
                return blob
    return None


def _public_part(data: bytes) -> bytes | None:
    """Return the public key of a private key in OpenSSH's own format."""
    lines = data.strip().splitlines()
    if not lines or b"BEGIN OPENSSH PRIVATE KEY" not in lines[0]:
        return None
    try:
        body = base64.b64decode(b"".join(lines[1:-1]))
    except (binascii.Error, ValueError):
        return None
    if not body.startswith(_MAGIC):
        return None
    position = len(_MAGIC)
    for _ in range(3):  # cipher, key derivation function, its options
        position += 4 + int.from_bytes(body[position : position + 4], "big")
    position += 4  # number of keys: always 1
    size = int.from_bytes(body[position : position + 4], "big")
    blob = body[position + 4 : position + 4 + size]
    return blob if len(blob) == size and blob else None


@lru_cache(maxsize=64)
def _private_key(path: Path, stamp: int) -> paramiko.PKey:
    import paramiko  # noqa: PLC0415 - slow
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - slow

    del stamp  # part of the cache's key: a changed file is read again
    try:
        return paramiko.PKey.from_path(path)
    except TypeError as error:  # by which cryptography says that it lacks the passphrase
        raise paramiko.PasswordRequiredException(str(error)) from error
    except UnsupportedAlgorithm as error:  # a key of a security token (`sk-`): only the agent can use it
        raise paramiko.SSHException(str(error)) from error
