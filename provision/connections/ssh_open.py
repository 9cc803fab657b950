"""Opens an SSH connection: TCP or jump host, host key check, public key login."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from provision.connections.contracts import NO_LOGINS_NOW, join_fingerprints
from provision.connections.keys import fingerprint_of
from provision.connections.lazy import import_at_first_use
from provision.connections.ssh_pool import SshPool, close_all, is_out_of_descriptors, too_few_descriptors
from provision.connections.ssh_target import PORT, Target
from provision.connections.trust import KnownKey, known_hosts
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, Refused, Transient
from provision.values.fingerprints import OWN_KEY
from provision.values.redaction import printable

if TYPE_CHECKING:
    import paramiko

CONNECT_TIMEOUT = 15.0
"""Seconds for TCP."""

HANDSHAKE_TIMEOUT = 60.0
"""Seconds for banner, key exchange and login each: emulated machines are slow."""

KEEPALIVE = 15
_DEAD_AFTER_MS = 60_000

_DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")

# without a handler the library's threads would print what we report ourselves
logging.getLogger("paramiko").addHandler(logging.NullHandler())

# half of the time that importing paramiko takes, for one directive of ~/.ssh/config
import_at_first_use("invoke")


def open_transport(
    target: Target, fingerprints: Sequence[str], system: str, pool: SshPool
) -> list[paramiko.Transport]:
    """Return the connections to a target: jump hosts first, the target's own last.

    Args:
        target: where.
        fingerprints: the accepted host keys; if empty, the known_hosts files decide.
        system: name for messages.
        pool: limits logins and key exchanges.

    Raises:
        Transient: `HOST_UNREACHABLE`; `HOST_BOOTING`: users may not log in yet, or any more.
        Permanent: `SSH_AUTH_FAILED`, `SSH_KEY_UNREADABLE`, `SSH_INCOMPATIBLE`,
            `TOO_FEW_DESCRIPTORS`.
        Refused: `HOST_KEY_UNKNOWN`, `HOST_KEY_CHANGED`, `HOST_KEY_REVOKED`.
    """
    chain: list[paramiko.Transport] = []
    if target.jump is not None:
        chain = open_transport(target.jump, (), target.jump.host, pool)
    try:
        with pool.login(target):
            chain.append(secured(target, fingerprints, system, chain, pool))
            with pool.handshakes:
                _log_in(chain[-1], target, system)
    except BaseException:
        close_all(chain)
        raise
    chain[-1].set_keepalive(KEEPALIVE)
    return chain


def shown_fingerprint(target: Target, system: str) -> str:
    """Return the fingerprint of the host key that a server shows; nothing is sent to it beyond the handshake.

    Raises:
        Transient, Permanent, Refused: as `open_transport`, the last one for jump hosts only.
    """
    pool = SshPool()
    chain = open_transport(target.jump, (), target.jump.host, pool) if target.jump is not None else []
    try:
        chain.append(_negotiated(target, system, chain, (), pool))
        return fingerprint_of(_host_key(chain[-1])[1])
    finally:
        close_all(chain)


def _ssh(target: Target) -> str:
    return f"ssh -p {target.port} {target.user}@{target.host}"


def _unreachable(target: Target, system: str, why: object) -> Transient:
    return Transient(
        Diagnostic(
            "HOST_UNREACHABLE",
            f"{system}: no SSH connection to {target.host} port {target.port}",
            system,
            evidence=(str(why) or type(why).__name__,),
            remedy=f"check that it is up and that `{_ssh(target)}` gets through",
        )
    )


def _socket(target: Target, chain: Sequence[paramiko.Transport]) -> socket.socket | paramiko.Channel:
    import paramiko  # noqa: PLC0415 - slow

    if chain:
        return chain[-1].open_channel(
            "direct-tcpip", (target.host, target.port), ("127.0.0.1", 0), timeout=CONNECT_TIMEOUT
        )
    if target.command:
        proxy: socket.socket = paramiko.ProxyCommand(target.command)  # type: ignore[assignment]  # socket-like
        return proxy
    connection = socket.create_connection((target.host, target.port), CONNECT_TIMEOUT)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_AFTER_MS)
    return connection


def secured(
    target: Target,
    fingerprints: Sequence[str],
    system: str,
    chain: Sequence[paramiko.Transport],
    pool: SshPool,
) -> paramiko.Transport:
    """Return a connection whose host key is accepted, before any login.

    Raises:
        Transient, Permanent, Refused: as `open_transport`.
    """
    known: list[KnownKey] = []
    if not fingerprints:
        known = known_hosts(*target.known_hosts).keys(target.name, target.port)
    kinds = [key.kind for key in known if not key.revoked]
    transport = _negotiated(target, system, chain, kinds, pool)
    kind, blob = _host_key(transport)
    if fingerprints and fingerprint_of(blob) not in fingerprints:
        # a fingerprint does not say its key's type: the server may have another key that has it
        for other in ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"):
            if other == kind:
                continue
            with contextlib.suppress(Transient, Permanent):
                second = _negotiated(target, system, chain, [other], pool, only=True)
                if fingerprint_of(_host_key(second)[1]) in fingerprints:
                    close_all([transport])
                    return second
                close_all([second])
    try:
        _check_key(blob, fingerprints, known, target, system)
    except Refused:
        close_all([transport])
        raise
    return transport


def _host_key(transport: paramiko.Transport) -> tuple[str, bytes]:
    key = transport.get_remote_server_key()
    return key.get_name(), key.asbytes()


def _negotiated(
    target: Target,
    system: str,
    chain: Sequence[paramiko.Transport],
    kinds: Sequence[str],
    pool: SshPool,
    *,
    only: bool = False,
) -> paramiko.Transport:
    import paramiko  # noqa: PLC0415 - slow

    from provision.connections.ssh_transport import LeanTransport  # noqa: PLC0415 - imports paramiko

    transport: paramiko.Transport | None = None
    try:
        transport = LeanTransport(_socket(target, chain))
        transport.banner_timeout = HANDSHAKE_TIMEOUT
        transport.handshake_timeout = HANDSHAKE_TIMEOUT
        transport.auth_timeout = HANDSHAKE_TIMEOUT
        _prefer(transport, kinds, only=only)
        with pool.handshakes:  # not around the socket: a host that is still booting keeps nobody waiting
            transport.start_client(timeout=HANDSHAKE_TIMEOUT)
    except paramiko.ssh_exception.IncompatiblePeer as error:
        close_all([transport] if transport is not None else [])
        raise Permanent(
            Diagnostic(
                "SSH_INCOMPATIBLE",
                f"{system}: {target.host} and we share no SSH algorithm",
                system,
                evidence=(str(error),),
                remedy="update the host's SSH server",
            )
        ) from error
    except (OSError, EOFError, paramiko.SSHException) as error:
        close_all([transport] if transport is not None else [])
        if is_out_of_descriptors(error):
            raise too_few_descriptors(system) from error
        raise _unreachable(target, system, error) from error
    return transport


def _prefer(transport: paramiko.Transport, kinds: Sequence[str], *, only: bool) -> None:
    """Prefer the host key types that are known."""
    options = transport.get_security_options()
    wanted: list[str] = []
    for kind in kinds:
        wanted += ("rsa-sha2-512", "rsa-sha2-256") if kind == "ssh-rsa" else (kind,)
    first = [each for each in dict.fromkeys(wanted) if each in options.key_types]
    if first:
        rest = () if only else (each for each in options.key_types if each not in first)
        options.key_types = (*first, *rest)


def _check_key(
    blob: bytes, fingerprints: Sequence[str], known: Sequence[KnownKey], target: Target, system: str
) -> None:
    shown = fingerprint_of(blob)
    if fingerprints:
        if shown in fingerprints:
            return
        how = _accepting(target, shown) or "look what the host itself shows, and run the same command again"
        raise _changed(system, shown, fingerprints, how)
    if any(key.revoked and key.blob == blob for key in known):
        raise Refused(
            Diagnostic(
                "HOST_KEY_REVOKED",
                f"{system}: the host shows a key that is marked as revoked: {shown}",
                system,
                untouched="nothing was sent to the host",
                remedy="find out why the key was revoked before you connect",
            )
        )
    valid = [key for key in known if not key.revoked]
    if any(key.blob == blob for key in valid):
        return
    if valid:
        name = target.name if target.port == PORT else f"[{target.name}]:{target.port}"
        how = (
            _accepting(target, shown)
            or f"`ssh-keygen -f {target.known_hosts[0]} -R '{name}'`, then {_learn(target)}"
        )
        raise _changed(system, shown, [fingerprint_of(key.blob) for key in valid], how)
    raise Refused(
        Diagnostic(
            "HOST_KEY_UNKNOWN",
            f"{system}: the host key {shown} is not known",
            system,
            untouched="nothing was sent to the host",
            remedy=f"compare it with the host's own (`{OWN_KEY}`), "
            f"then {_accepting(target, shown) or _learn(target)}",
        )
    )


def _accepting(target: Target, shown: str) -> str:
    """Return what a person does to have a key accepted; empty where only known_hosts files decide."""
    return target.accept.replace("{key}", shown)


def _learn(target: Target) -> str:
    """Return how ssh(1) itself asks for a key and keeps it."""
    return (
        f"`ssh -o UserKnownHostsFile={target.known_hosts[0]} {_ssh(target).removeprefix('ssh ')}`, which asks"
    )


def _changed(system: str, shown: str, wanted: Sequence[str], how: str) -> Refused:
    return Refused(
        Diagnostic(
            "HOST_KEY_CHANGED",
            f"{system}: the host shows the key {shown}, which is not the accepted one",
            system,
            evidence=(f"accepted: {join_fingerprints(wanted)}",),
            untouched="nothing was sent to the host",
            remedy=f"someone may be in between; if the host was made anew: {how}",
        )
    )


# ---------------------------------------------------------------- login


def _log_in(transport: paramiko.Transport, target: Target, system: str) -> None:
    import paramiko  # noqa: PLC0415 - slow

    words: list[str] = []
    for key in _keys(target, system, words):
        try:
            missing = transport.auth_publickey(target.user, key)
        except paramiko.AuthenticationException as error:
            words.append(f"{key.get_name()} {key.fingerprint}: {error}")
            if transport.is_active():
                continue
            words += _banner(transport)
            # pam_nologin(8) speaks after the right key, before sshd hangs up
            if any(each in line for line in words for each in NO_LOGINS_NOW):
                raise _booting(system, words) from error
            break  # the server hung up: another key cannot be tried
        except (OSError, EOFError, paramiko.SSHException) as error:
            # servers hang up after some wrong keys; before the first one it is the network
            if not words:
                raise _unreachable(target, system, error) from error
            words.append(str(error))
            break
        if not missing:
            return
        words.append(f"{key.get_name()}: accepted, but the server also wants {', '.join(missing)}")
    raise Permanent(
        Diagnostic(
            "SSH_AUTH_FAILED",
            f"{system}: {target.host} lets {target.user} in with none of our keys",
            system,
            evidence=tuple(words) or ("no key was found: neither a file nor in an agent",),
            remedy=f"see that `{_ssh(target)}` works, or name the key in the inventory",
        )
    )


def _banner(transport: paramiko.Transport) -> list[str]:
    """Return the last lines of the server's last banner; the library's own method has none after the end."""
    said = getattr(transport.auth_handler, "banner", None)
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said or "")
    return [line for each in text.splitlines() if (line := printable(each).strip())][-5:]


def _booting(system: str, words: Sequence[str]) -> Transient:
    return Transient(
        Diagnostic(
            "HOST_BOOTING",
            f"{system}: the host does not let users log in yet",
            system,
            evidence=tuple(words),
            remedy="try again when it has booted",
        )
    )


def _keys(target: Target, system: str, words: list[str]) -> Iterator[paramiko.PKey]:
    """Yield the keys to try; each is only read when the ones before it were refused."""
    import paramiko  # noqa: PLC0415 - slow

    locked = False
    files = list(target.keys)
    if not target.only_keys:
        yield from _agent_keys()
        ssh = Path.home() / ".ssh"
        files += [path for name in _DEFAULT_KEYS if (path := ssh / name).is_file() and path not in files]
    for path in files:
        try:
            yield _private_key(path, path.stat().st_mtime_ns)
        except paramiko.PasswordRequiredException:
            locked = True
            words.append(f"{path}: needs a passphrase: load it into ssh-agent")
        except (OSError, ValueError, paramiko.SSHException, paramiko.pkey.UnknownKeyType) as error:
            if path in target.keys and target.only_keys:
                raise Permanent(
                    Diagnostic(
                        "SSH_KEY_UNREADABLE",
                        f"{system}: the private key {path} cannot be read",
                        system,
                        evidence=(str(error),),
                        remedy="name another key in the inventory, or make this one readable",
                    )
                ) from error
            words.append(f"{path}: {error}")
    if locked and target.only_keys:
        yield from _agent_keys()


def _agent_keys() -> Iterator[paramiko.PKey]:
    import paramiko  # noqa: PLC0415 - slow

    agent = paramiko.Agent()
    try:
        yield from agent.get_keys()
    except paramiko.SSHException:
        return
    finally:
        agent.close()


@lru_cache(maxsize=64)
def _private_key(path: Path, stamp: int) -> paramiko.PKey:
    import paramiko  # noqa: PLC0415 - slow

    del stamp  # part of the cache's key: a changed file is read again
    return paramiko.PKey.from_path(path)
