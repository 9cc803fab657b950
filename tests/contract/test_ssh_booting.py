"""A server that takes the right key, says why nobody may log in, and hangs up: sshd with pam_nologin."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import paramiko
import pytest

from provision.connections import ssh_open
from provision.connections.contracts import SshEndpoint
from provision.connections.keys import new_host_key
from provision.connections.ssh import SshConnection
from provision.connections.ssh_pool import SshPool, close_all
from provision.connections.ssh_target import resolve
from provision.values.cancel import Cancel
from provision.values.errors import Permanent, Transient

BOOTING = (
    '"System is booting up. Unprivileged users are not permitted to log in yet. Please come back later. '
    'For technical details, see pam_nologin(8)."\r\n'
)


class Gate(paramiko.ServerInterface):
    """Hangs up after the right key, with a banner, or lets in where there is none to say."""

    def __init__(self, transport: Any, banner: str | None) -> None:
        self.transport = transport
        self.banner = banner

    def get_allowed_auths(self, username: str) -> str:
        del username
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        del username, key
        if self.banner is None:
            return paramiko.common.AUTH_SUCCESSFUL
        message = paramiko.Message()
        message.add_byte(bytes([53]))  # SSH_MSG_USERAUTH_BANNER of RFC 4252, section 5.4
        message.add_string(self.banner)
        message.add_string("")
        self.transport._send_message(message)
        self.transport.close()
        return paramiko.common.AUTH_FAILED


@contextmanager
def gate(*banners: str | None) -> Iterator[tuple[int, str]]:
    """Serve one connection a banner on loopback; yields the port and the host key's fingerprint."""
    pair = new_host_key()
    key = paramiko.Ed25519Key.from_private_key(io.StringIO(pair.private.get_secret_value()))
    kept: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                for banner in banners:
                    transport = paramiko.Transport(listening.accept()[0])
                    kept.append(transport)
                    transport.add_server_key(key)
                    with suppress(paramiko.SSHException, EOFError):
                        transport.start_server(threading.Event(), Gate(transport, banner))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1], pair.fingerprint
        finally:
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            for connection in kept:
                connection.close()


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    file = tmp_path / "key"
    file.touch(0o600)
    file.write_text(new_host_key().private.get_secret_value())
    return file


def endpoint(port: int, fingerprint: str, key: Path, wait: float = 0.0) -> SshEndpoint:
    return SshEndpoint("127.0.0.1", "debian", port, key, fingerprints=(fingerprint,), wait=wait)


@pytest.mark.parametrize("words", [BOOTING, "System is going down. Unprivileged users may not log in.\n"])
def test_a_host_that_lets_nobody_in_yet_is_tried_again_later(words: str, key: Path) -> None:
    with gate(words) as (port, shown), pytest.raises(Transient, match="HOST_BOOTING") as caught:
        ssh_open.open_transport(resolve(endpoint(port, shown, key)), (shown,), "vm-1/ssh", SshPool())
    (problem,) = caught.value.diagnostics
    assert any(words.split(".", 1)[0].strip('"') in each for each in problem.evidence)


def test_what_a_server_says_before_it_hangs_up_is_shown(key: Path) -> None:
    words = "Your account has expired\x1b[2J; see the helpdesk\n"
    with gate(words) as (port, shown), pytest.raises(Permanent, match="SSH_AUTH_FAILED") as caught:
        ssh_open.open_transport(resolve(endpoint(port, shown, key)), (shown,), "vm-1/ssh", SshPool())
    (problem,) = caught.value.diagnostics
    assert any("Your account has expired" in each for each in problem.evidence)
    assert "\x1b" not in "".join(problem.evidence)


def test_it_is_waited_for_until_it_has_booted(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provision.connections.ssh._RETRY_SECONDS", 0.01)
    with gate(BOOTING, BOOTING, None) as (port, shown):
        connection = SshConnection(endpoint(port, shown, key, wait=60.0), "vm-1/ssh")
        chain = connection._open_with_retries(Cancel())
        assert chain[-1].is_authenticated()
        close_all(chain)
