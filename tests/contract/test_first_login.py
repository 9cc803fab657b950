"""The first login against a server that takes passwords, and certificates that nobody signed; on loopback."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import paramiko
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, OPEN_SUCCEEDED
from pydantic import SecretStr

from provision.connections.contracts import SshEndpoint
from provision.connections.download import digest_of
from provision.connections.first_login import certificate_of, install_key, key_script
from provision.connections.keys import fingerprint_of
from provision.values.cancel import Cancel
from provision.values.errors import Permanent, Refused, Transient

PUBLIC = "ssh-ed25519 AAAA me@here"


class Logins(paramiko.ServerInterface):
    """Lets root in with one password, and runs what it asks for in a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.tried: list[str] = []
        self.done = threading.Event()

    def get_allowed_auths(self, username: str) -> str:
        del username
        return "password"

    def check_auth_password(self, username: str, password: str) -> int:
        self.tried.append(password)
        good = (username, password) == ("root", "hunter2")
        return AUTH_SUCCESSFUL if good else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        del kind, chanid
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._run, args=(channel, command.decode()), daemon=True).start()
        return True

    def _run(self, channel: paramiko.Channel, command: str) -> None:
        script = channel.makefile("rb").read()
        result = subprocess.run(
            ["/bin/sh", "-c", command], input=script, env={**os.environ, "HOME": str(self.home)}, check=False
        )
        channel.send_exit_status(result.returncode)
        channel.close()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Logins, SshEndpoint]]:
    (tmp_path / "mine").mkdir()
    (tmp_path / "root").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "mine"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key = paramiko.ECDSAKey.generate()
    logins = Logins(tmp_path / "root")
    listener = socket.create_server(("127.0.0.1", 0))
    transports: list[paramiko.Transport] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                transport = paramiko.Transport(listener.accept()[0])
                transport.add_server_key(key)
                transports.append(transport)
                with contextlib.suppress(paramiko.SSHException, EOFError):
                    transport.start_server(server=logins)

    threading.Thread(target=serve, daemon=True).start()
    port = listener.getsockname()[1]
    yield logins, SshEndpoint("127.0.0.1", "root", port, fingerprints=(fingerprint_of(key.asbytes()),))
    listener.close()
    for transport in transports:
        transport.close()


def test_the_password_installs_the_key_once_and_is_kept_nowhere(host: tuple[Logins, SshEndpoint]) -> None:
    logins, endpoint = host
    for _ in range(2):
        install_key(endpoint, SecretStr("hunter2"), PUBLIC)
    keys = logins.home / ".ssh" / "authorized_keys"
    assert keys.read_text() == f"{PUBLIC}\n"
    assert keys.stat().st_mode & 0o77 == 0
    assert logins.tried == ["hunter2", "hunter2"]


def test_a_wrong_password_changes_nothing_and_is_not_repeated(host: tuple[Logins, SshEndpoint]) -> None:
    logins, endpoint = host
    with pytest.raises(Permanent, match="SSH_AUTH_FAILED") as caught:
        install_key(endpoint, SecretStr("wrong-word"), PUBLIC)
    assert "wrong-word" not in str(caught.value)
    assert not (logins.home / ".ssh").exists()


def test_no_password_is_sent_to_another_host(host: tuple[Logins, SshEndpoint]) -> None:
    logins, endpoint = host
    other = SshEndpoint("127.0.0.1", "root", endpoint.port, fingerprints=("SHA256:" + "x" * 43,))
    with pytest.raises(Refused, match="HOST_KEY_CHANGED"):
        install_key(other, SecretStr("hunter2"), PUBLIC)
    assert logins.tried == []


def test_a_last_line_without_its_end_is_kept_whole(tmp_path: Path) -> None:
    keys = tmp_path / ".ssh" / "authorized_keys"
    keys.parent.mkdir()
    keys.write_text("ssh-rsa BBBB other")
    subprocess.run(
        ["/bin/sh", "-c", key_script(PUBLIC)], env={**os.environ, "HOME": str(tmp_path)}, check=True
    )
    assert keys.read_text() == f"ssh-rsa BBBB other\n{PUBLIC}\n"


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[tuple[int, str]]:
    """Yield port and fingerprint of a server whose certificate nobody signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "tls.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                plain = listener.accept()[0]
            except OSError:
                return
            with contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as secure:
                secure.recv(1)

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1], certificate.fingerprint(hashes.SHA256()).hex(":").upper()
    listener.close()


def test_the_fingerprint_of_a_certificate_is_read(tls: tuple[int, str]) -> None:
    assert certificate_of("127.0.0.1", tls[0]) == tls[1]


def test_no_certificate_no_fingerprint() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(Transient, match="API_UNREACHABLE"):
        certificate_of("127.0.0.1", port)


def test_a_download_behind_a_certificate_that_nobody_signed_is_refused(tls: tuple[int, str]) -> None:
    with pytest.raises(Permanent, match="certificate"):
        digest_of(f"https://127.0.0.1:{tls[0]}/x.img", Cancel())
