"""The first login to a host: read its certificate, and install our public key by password, once."""

from __future__ import annotations

import hashlib
import shlex
import socket
import ssl
from typing import TYPE_CHECKING

from provision.connections.contracts import SshEndpoint
from provision.connections.ssh_open import connect_and_check_key, open_transport
from provision.connections.ssh_pool import SshPool, close_all
from provision.connections.ssh_target import resolve
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, Transient

if TYPE_CHECKING:
    from pydantic import SecretStr

TIMEOUT = 30.0
"""Seconds."""


def certificate_of(host: str, port: int) -> str:
    """Return the SHA-256 fingerprint of the certificate that a host shows, as PVE writes it: `AA:BB:...`.

    Nothing is sent to it. A person must confirm the fingerprint.

    Raises:
        Transient: it does not answer.
    """
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # only read: a person compares it, and it is pinned from then on
    try:
        with (
            socket.create_connection((host, port), timeout=TIMEOUT) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            certificate = secure.getpeercert(binary_form=True) or b""
    except OSError as error:
        summary = f"https://{host}:{port} sends no certificate: {error}"
        raise Transient(
            Diagnostic("API_UNREACHABLE", summary, host, remedy="check that pveproxy runs")
        ) from None
    digits = hashlib.sha256(certificate).hexdigest().upper()
    return ":".join(digits[index : index + 2] for index in range(0, len(digits), 2))


def key_script(public: str) -> str:
    """Return the script that adds a public key to the login's authorized keys, once."""
    line = shlex.quote(public.strip())
    return (
        "set -eu; umask 077; cd; mkdir -p .ssh; f=.ssh/authorized_keys; touch $f\n"
        # our line would be appended to a last line without a line feed
        'if [ -s $f ] && [ "$(tail -c 1 $f | wc -l)" -eq 0 ]; then echo >>$f; fi\n'
        f"grep -qxF -- {line} $f || printf '%s\\n' {line} >>$f\n"
    )


def install_key(endpoint: SshEndpoint, password: SecretStr, public: str) -> None:
    """Log in with a password and add a public key; the password is used once and not stored.

    Args:
        endpoint: the host, and its accepted host keys.
        password: of the login.
        public: line of authorized_keys.

    Raises:
        Permanent: `SSH_AUTH_FAILED`: the password is wrong, or the server takes none; `KEY_NOT_INSTALLED`.
        Transient, Refused: as `open_transport`.
    """
    import paramiko  # noqa: PLC0415 - slow

    target, name, pool = resolve(endpoint), endpoint.address, SshPool()
    chain = open_transport(target.jump, (), target.jump.host, pool) if target.jump is not None else []
    try:
        chain.append(connect_and_check_key(target, endpoint.fingerprints, name, chain, pool))
        try:
            chain[-1].auth_password(target.user, password.get_secret_value())
        except paramiko.AuthenticationException:
            summary = f"{name} does not accept this password for {target.user}"
            remedy = f"try again, or install the key yourself: `ssh-copy-id {target.user}@{target.host}`"
            raise Permanent(Diagnostic("SSH_AUTH_FAILED", summary, name, remedy=remedy)) from None
        channel = chain[-1].open_session(timeout=TIMEOUT)
        channel.settimeout(TIMEOUT)
        channel.exec_command("exec /bin/sh -s")
        channel.sendall(key_script(public).encode())
        channel.shutdown_write()
        errors = channel.makefile_stderr("rb").read(4096)
        if channel.recv_exit_status() != 0:
            evidence = tuple(errors.decode("utf-8", "replace").splitlines()[-5:])
            summary = f"{name}: the public key could not be installed"
            raise Permanent(Diagnostic("KEY_NOT_INSTALLED", summary, name, evidence=evidence))
    except (OSError, EOFError, paramiko.SSHException) as error:
        summary = f"{name}: the connection broke: {error}"
        raise Transient(Diagnostic("HOST_UNREACHABLE", summary, name)) from None
    finally:
        close_all(chain)
