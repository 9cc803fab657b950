"""Opens an SSH connection: TCP or jump host, host key check, public key login."""

from __future__ import annotations

import contextlib
import logging
import shlex
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from provision.connections.contracts import NO_LOGINS_NOW, join_fingerprints
from provision.connections.deferred_import import import_at_first_use
from provision.connections.keys import fingerprint_of
from provision.connections.ssh_identities import Identities
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

# without a handler, the library's threads would print errors that we report ourselves
logging.getLogger("paramiko").addHandler(logging.NullHandler())

# importing it takes half of paramiko's import time, and serves one directive of ~/.ssh/config
import_at_first_use("invoke")


def open_transport(
    target: Target, fingerprints: Sequence[str], system: str, pool: SshPool
) -> list[paramiko.Transport]:
    """Return logged-in transports to a target: those of jump hosts first, the target's own last.

    Args:
        target: the server.
        fingerprints: the accepted host keys; if empty, the known_hosts files decide.
        system: name for messages.
        pool: limits logins and key exchanges.

    Raises:
        Transient: `HOST_UNREACHABLE`; `HOST_BOOTING`: the host boots or shuts down.
        Permanent: `SSH_AUTH_FAILED`, `SSH_KEY_UNREADABLE`, `SSH_INCOMPATIBLE`,
            `TOO_FEW_DESCRIPTORS`.
        Refused: `HOST_KEY_UNKNOWN`, `HOST_KEY_CHANGED`, `HOST_KEY_REVOKED`.
    """
    chain: list[paramiko.Transport] = []
    if target.jump is not None:
        chain = open_transport(target.jump, (), target.jump.host, pool)
    identities = Identities(target)
    try:
        with pool.login(target):
            while True:
                chain.append(connect_and_check_key(target, fingerprints, system, chain, pool))
                with pool.handshakes:
                    hung_up = _log_in(chain[-1], target, system, identities)
                if not hung_up:
                    break
                close_all([chain.pop()])
    except BaseException:
        close_all(chain)
        raise
    finally:
        identities.close()
    chain[-1].set_keepalive(KEEPALIVE)
    return chain


def shown_fingerprint(target: Target, system: str) -> str:
    """Return the fingerprint of the host key that a server shows; only the handshake is sent.

    Raises:
        Transient, Permanent, Refused: as `open_transport`, the last one for jump hosts only.
    """
    pool = SshPool()
    chain = open_transport(target.jump, (), target.jump.host, pool) if target.jump is not None else []
    try:
        chain.append(_negotiate(target, system, chain, (), pool))
        return fingerprint_of(_host_key(chain[-1])[1])
    finally:
        close_all(chain)


def _ssh_command(target: Target) -> str:
    return f"ssh -p {target.port} {target.user}@{target.host}"


def _unreachable(target: Target, system: str, cause: object) -> Transient:
    return Transient(
        Diagnostic(
            "HOST_UNREACHABLE",
            f"{system}: cannot connect to {target.host} port {target.port} by SSH",
            system,
            evidence=(str(cause) or type(cause).__name__,),
            remedy=f"check that the host is up, then try to log in: `{_ssh_command(target)}`",
        )
    )


def _connect(target: Target, chain: Sequence[paramiko.Transport]) -> socket.socket | paramiko.Channel:
    import paramiko  # noqa: PLC0415 - slow

    if chain:
        return chain[-1].open_channel(
            "direct-tcpip", (target.host, target.port), ("127.0.0.1", 0), timeout=CONNECT_TIMEOUT
        )
    if target.command:
        # ssh(1) hands the command to a shell, too
        command = shlex.join(("/bin/sh", "-c", f"exec {target.command}"))
        proxy: socket.socket = paramiko.ProxyCommand(command)  # type: ignore[assignment]  # socket-like
        return proxy
    connection = _direct(target)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_AFTER_MS)
    return connection


_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}


def _direct(target: Target) -> socket.socket:
    """Return a connection to a server, from the address and by the device that ssh(1) would use.

    Raises:
        OSError: none of its addresses can be connected to.
    """
    family = _FAMILIES.get(target.family, socket.AF_UNSPEC)
    failure: OSError = OSError(f"{target.host} has no address")
    for kind, form, protocol, _, address in socket.getaddrinfo(
        target.host, target.port, family, socket.SOCK_STREAM
    ):
        connection = socket.socket(kind, form, protocol)
        try:
            connection.settimeout(CONNECT_TIMEOUT)
            if target.device:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, target.device.encode())
            if target.bind:
                connection.bind((target.bind, 0))
            connection.connect(address)
        except OSError as error:
            connection.close()
            failure = error
        else:
            return connection
    raise failure


def connect_and_check_key(
    target: Target,
    fingerprints: Sequence[str],
    system: str,
    chain: Sequence[paramiko.Transport],
    pool: SshPool,
) -> paramiko.Transport:
    """Return a transport whose host key is accepted, before any login.

    Raises:
        Transient, Permanent, Refused: as `open_transport`.
    """
    known: list[KnownKey] = []
    if not fingerprints:
        known = known_hosts(*target.known_hosts).keys(target.name, target.port)
    kinds = [key.kind for key in known if not key.revoked]
    transport = _negotiate(target, system, chain, kinds, pool)
    kind, blob = _host_key(transport)
    if fingerprints and fingerprint_of(blob) not in fingerprints:
        # a fingerprint does not tell the key type: another key of the server may have it
        for other in ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"):
            if other == kind:
                continue
            with contextlib.suppress(Transient, Permanent):
                candidate = _negotiate(target, system, chain, [other], pool, only=True)
                if fingerprint_of(_host_key(candidate)[1]) in fingerprints:
                    close_all([transport])
                    return candidate
                close_all([candidate])
    try:
        _check_key(blob, fingerprints, known, target, system)
    except Refused:
        close_all([transport])
        raise
    return transport


def _host_key(transport: paramiko.Transport) -> tuple[str, bytes]:
    key = transport.get_remote_server_key()
    return key.get_name(), key.asbytes()


def _negotiate(
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
        transport = LeanTransport(_connect(target, chain))
        transport.banner_timeout = HANDSHAKE_TIMEOUT
        transport.handshake_timeout = HANDSHAKE_TIMEOUT
        transport.auth_timeout = HANDSHAKE_TIMEOUT
        _prefer_key_types(transport, kinds, only=only)
        with pool.handshakes:  # not around connecting: a host that is still booting blocks no other login
            transport.start_client(timeout=HANDSHAKE_TIMEOUT)
    except paramiko.ssh_exception.IncompatiblePeer as error:
        close_all([transport] if transport is not None else [])
        raise Permanent(
            Diagnostic(
                "SSH_INCOMPATIBLE",
                f"{system}: no common SSH algorithm with {target.host}",
                system,
                evidence=(str(error),),
                remedy="update the SSH server of the host",
            )
        ) from error
    except (OSError, EOFError, paramiko.SSHException) as error:
        close_all([transport] if transport is not None else [])
        if is_out_of_descriptors(error):
            raise too_few_descriptors(system) from error
        raise _unreachable(target, system, error) from error
    return transport


def _prefer_key_types(transport: paramiko.Transport, kinds: Sequence[str], *, only: bool) -> None:
    """Ask for a host key of a known type first, or `only` for that."""
    options = transport.get_security_options()
    algorithms: list[str] = []
    for kind in kinds:
        algorithms += ("rsa-sha2-512", "rsa-sha2-256") if kind == "ssh-rsa" else (kind,)
    preferred = [name for name in dict.fromkeys(algorithms) if name in options.key_types]
    if preferred:
        others = () if only else (name for name in options.key_types if name not in preferred)
        options.key_types = (*preferred, *others)


def _check_key(
    blob: bytes, fingerprints: Sequence[str], known: Sequence[KnownKey], target: Target, system: str
) -> None:
    shown = fingerprint_of(blob)
    if fingerprints:
        if shown in fingerprints:
            return
        how = (
            _accept_command(target, shown) or "compare it with the key on the host, and run the command again"
        )
        raise _key_changed(system, shown, fingerprints, how)
    if any(key.revoked and key.blob == blob for key in known):
        raise Refused(
            Diagnostic(
                "HOST_KEY_REVOKED",
                f"{system}: the host key {shown} is revoked",
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
            _accept_command(target, shown)
            or f"`ssh-keygen -f {target.known_hosts[0]} -R '{name}'` {_learn_command(target)}"
        )
        raise _key_changed(system, shown, [fingerprint_of(key.blob) for key in valid], how)
    raise Refused(
        Diagnostic(
            "HOST_KEY_UNKNOWN",
            f"{system}: the host key {shown} is not known",
            system,
            untouched="nothing was sent to the host",
            remedy=f"show the key on the console of the host: `{OWN_KEY}`, and accept it if it is the same: "
            f"{_accept_command(target, shown) or _learn_command(target)}",
        )
    )


def _accept_command(target: Target, shown: str) -> str:
    """Return how a person accepts a key; empty if known_hosts files alone decide."""
    return target.accept.replace("{key}", shown)


def _learn_command(target: Target) -> str:
    """Return the ssh(1) command that asks whether to accept a key, and stores it."""
    options = _ssh_command(target).removeprefix("ssh ")
    return f"`ssh -o UserKnownHostsFile={target.known_hosts[0]} {options}`"


def _key_changed(system: str, shown: str, accepted: Sequence[str], how: str) -> Refused:
    return Refused(
        Diagnostic(
            "HOST_KEY_CHANGED",
            f"{system}: the host key is {shown}, which is not an accepted key",
            system,
            evidence=(f"accepted: {join_fingerprints(accepted)}",),
            untouched="nothing was sent to the host",
            remedy=f"check that nobody intercepts the connection; if the host was reinstalled: {how}",
        )
    )


# ---------------------------------------------------------------- login


def _log_in(transport: paramiko.Transport, target: Target, system: str, identities: Identities) -> bool:
    """Offer the keys that were not offered yet; True if the server hung up before the last one.

    Servers hang up after `MaxAuthTries` wrong keys (sshd_config(5)): another connection goes on.

    Raises:
        Transient: `HOST_UNREACHABLE`, `HOST_BOOTING`.
        Permanent: `SSH_AUTH_FAILED`, `SSH_KEY_UNREADABLE`.
    """
    import paramiko  # noqa: PLC0415 - slow

    for key in identities:
        try:
            missing = transport.auth_publickey(target.user, key)
        except paramiko.AuthenticationException as error:
            identities.refusals.append(f"{key.get_name()} {key.fingerprint}: {error}")
            if not transport.is_active():
                _raise_if_booting(transport, system, identities, error)
                return identities.has_more() or _refuse(target, system, identities)
        except (OSError, EOFError, paramiko.SSHException) as error:
            # servers close the connection after some wrong keys; without one, it is the network
            if not identities.refusals:
                raise _unreachable(target, system, error) from error
            identities.refusals.append(str(error))
            return identities.has_more() or _refuse(target, system, identities)
        else:
            if not missing:
                return False
            others = ", ".join(missing)
            identities.refusals.append(f"{key.get_name()}: accepted, but the server also wants {others}")
    return _refuse(target, system, identities)


def _refuse(target: Target, system: str, identities: Identities) -> bool:
    raise _no_key_accepted(target, system, identities)


def _raise_if_booting(
    transport: paramiko.Transport, system: str, identities: Identities, error: Exception
) -> None:
    """Raise if pam_nologin(8) said why sshd closed the connection after the right key."""
    lines = (str(error), *_banner(transport))
    identities.refusals += lines[1:]
    if any(text in line for line in lines for text in NO_LOGINS_NOW):
        raise _host_booting(system, identities.refusals) from error


def _no_key_accepted(target: Target, system: str, identities: Identities) -> Permanent:
    if target.only_keys and len(identities.unreadable) == len(identities.refusals) > 0:
        path, why = identities.unreadable[0]
        return Permanent(
            Diagnostic(
                "SSH_KEY_UNREADABLE",
                f"{system}: the private key {path} cannot be read",
                system,
                evidence=(why,),
                remedy="name another key in the inventory, make this file readable, or load it: `ssh-add`",
            )
        )
    return Permanent(
        Diagnostic(
            "SSH_AUTH_FAILED",
            f"{system}: {target.host} accepts none of our keys for {target.user}",
            system,
            evidence=tuple(identities.refusals) or ("no key was found: neither a file nor in ssh-agent",),
            remedy=f"make `{_ssh_command(target)}` work, or name the key in the inventory",
        )
    )


def _banner(transport: paramiko.Transport) -> list[str]:
    """Return the last lines of the server's banner; paramiko's own method has none after the end."""
    banner = getattr(transport.auth_handler, "banner", None)
    text = banner.decode("utf-8", "replace") if isinstance(banner, bytes) else str(banner or "")
    lines = (printable(line).strip() for line in text.splitlines())
    return [line for line in lines if line][-5:]


def _host_booting(system: str, refusals: Sequence[str]) -> Transient:
    return Transient(
        Diagnostic(
            "HOST_BOOTING",
            f"{system}: the host does not accept logins yet",
            system,
            evidence=tuple(refusals),
            remedy="wait until it has booted, and run the command again",
        )
    )
