"""A real OpenSSH server on a loopback address, with keys and port of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from provision.connections.contracts import KeyPair, SshEndpoint
from provision.connections.keys import new_host_key

SSHD = "/usr/sbin/sshd"


def missing() -> str:
    """Return why no server can be started here, empty if one can."""
    if not Path(SSHD).exists():
        return "openssh-server is not installed"
    if not shutil.which("ssh-keygen"):
        return "openssh-client is not installed"
    return ""


def write_key(path: Path, key: KeyPair) -> Path:
    """Write a private key so that sshd and ssh accept the file."""
    path.touch(0o600)
    path.write_text(key.private.get_secret_value())
    return path


@dataclass
class Server:
    """A running server."""

    folder: Path
    address: str
    port: int
    host_key: KeyPair
    client_key: Path
    user: str
    process: subprocess.Popen[bytes] | None = None
    extra: tuple[str, ...] = ()
    sessions: list[int] = field(default_factory=list)

    def endpoint(self, **changes: object) -> SshEndpoint:
        """Return how to reach it with its right key; `changes` replace fields."""
        values: dict[str, object] = {
            "address": self.address,
            "user": self.user,
            "port": self.port,
            "key": self.client_key,
            "fingerprints": (self.host_key.fingerprint,),
            **changes,
        }
        return SshEndpoint(**values)  # type: ignore[arg-type]  # the test names fields by keyword

    def start(self) -> None:
        """Start it and wait until it listens."""
        config = self.folder / "sshd_config"
        lines = [
            f"ListenAddress {self.address}",
            f"Port {self.port}",
            f"HostKey {self.folder}/host_key",
            f"PidFile {self.folder}/sshd.pid",
            f"AuthorizedKeysFile {self.folder}/authorized_keys",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "PermitRootLogin prohibit-password",
            "LogLevel ERROR",
            *self.extra,
        ]
        config.write_text("\n".join(lines) + "\n")
        Path("/run/sshd").mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(config)], stderr=(self.folder / "sshd.log").open("ab")
        )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex((self.address, self.port)) == 0:
                    return
            time.sleep(0.02)
        raise RuntimeError((self.folder / "sshd.log").read_text())

    def stop(self) -> None:
        """Stop the listener; open sessions go on."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(10)
            self.process = None

    def cut(self) -> None:
        """Kill the processes that serve open connections, as if the cable were cut."""
        if self.process is None:
            return
        children = subprocess.run(
            ["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False
        ).stdout.split()
        subprocess.run(["kill", "-KILL", *children], check=False)


@contextmanager
def server(folder: Path, address: str, user: str = "root", *extra: str) -> Iterator[Server]:
    """Run a server as long as the block lasts."""
    host_key, client_key = new_host_key(), new_host_key()
    write_key(folder / "host_key", host_key)
    (folder / "authorized_keys").write_text(client_key.public + "\n")
    with socket.socket() as free:
        free.bind((address, 0))
        port = free.getsockname()[1]
    running = Server(
        folder, address, port, host_key, write_key(folder / "client_key", client_key), user, extra=extra
    )
    running.start()
    try:
        yield running
    finally:
        running.cut()
        running.stop()
