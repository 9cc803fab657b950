"""Sets up access to a Proxmox VE host: asks what it is, runs the scripts, keeps the secret of the token."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import SecretStr

from provision.api.run_identity import who
from provision.connections.contracts import ShellConnection
from provision.hosts.driver import HostDriver
from provision.hosts.query_kinds import HOST_KINDS
from provision.proxmox.setup import QUERIES, ProxmoxHost, read_host
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent
from provision.values.redaction import Redactor
from provision.values.whole_file import make_private_folder, write_whole


def look(connection: ShellConnection, host: str, cancel: Cancel) -> ProxmoxHost:
    """Ask a host what it is, by one execution; changes nothing.

    Raises:
        Permanent: it is not Proxmox VE, or one of its own tools fails.
        ProvisionError: it does not answer.
    """
    driver = HostDriver(host, connection, HOST_KINDS, who=who())
    return read_host(driver.answer(QUERIES, cancel), host)


def run(
    connection: ShellConnection,
    script: str,
    host: str,
    cancel: Cancel,
    printed: bytearray | None = None,
) -> None:
    """Run a script.

    Args:
        connection: to the host, as root.
        script: POSIX shell text.
        host: for messages.
        cancel: ends it early.
        printed: takes what it prints, also of a script that fails later.

    Raises:
        Permanent: it failed; the evidence is its last words on the error stream.
    """
    streams = (bytearray() if printed is None else printed, bytearray())
    code = connection.execute(
        script.encode(), on_output=lambda data, error: streams[error].extend(data), cancel=cancel
    )
    if code != 0:
        words = bytes(streams[1]).decode("utf-8", "replace").splitlines()[-10:]
        why = "the connection was cut" if code is None else f"a command ended with {code}"
        raise Permanent(
            Diagnostic(
                "BOOTSTRAP_FAILED",
                f"{host}: {why}",
                host,
                evidence=tuple(words),
                remedy="fix this and run the command again; it resumes",
            )
        )


def run_grant(
    connection: ShellConnection, script: str, host: str, cancel: Cancel, kept: Path, redactor: Redactor
) -> None:
    """Run the script of `grant`, and write the token's secret if it prints one, even where it fails later.

    Nothing tells the secret a second time: without it, the same command could not go on.

    Args:
        connection: to the host, as root.
        script: what `grant` returned.
        host: for messages.
        cancel: ends it early.
        kept: the secret's file.
        redactor: learns the secret.

    Raises:
        Permanent: it failed.
    """
    printed = bytearray()
    try:
        run(connection, script, host, cancel, printed)
    finally:
        secret = _secret_of(bytes(printed))
        if secret is not None:
            redactor.add(secret)
            _write_secret(kept, secret)


def _secret_of(answer: bytes) -> SecretStr | None:
    """Return the token's secret from what `pveum user token add` printed, or None."""
    try:
        value = json.loads(answer)["value"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return SecretStr(str(value))


def _write_secret(path: Path, secret: SecretStr) -> None:
    """Write a secret, readable by its owner only from its first byte."""
    make_private_folder(path.parent)
    write_whole(path, secret.get_secret_value() + "\n")
