"""SshConnection against an OpenSSH server with few sessions and few tries, and with a real ssh-agent."""

from __future__ import annotations

import getpass
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from provision.connections.keys import new_host_key
from provision.connections.ssh import SshConnection
from provision.values.cancel import Cancel
from provision.values.errors import Permanent
from tests.contract.sshd import Server, missing, server, write_key
from tests.contract.test_ssh_connection import answers, count_openings, run

if missing():
    pytest.skip(missing(), allow_module_level=True)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the developer's own keys, agent and configuration out of the tests."""
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return tmp_path / "home"


@pytest.fixture(scope="module")
def hardened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    limits = ("MaxSessions 1", "MaxAuthTries 6")
    with server(tmp_path_factory.mktemp("hardened"), "127.0.0.44", getpass.getuser(), *limits) as running:
        yield running


def test_a_refused_session_cuts_nothing_that_runs(hardened: Server, tmp_path: Path) -> None:
    connection = SshConnection(hardened.endpoint())
    begun, go, codes = threading.Event(), tmp_path / "go", []

    def run_long() -> None:
        script = f"echo begun; while [ ! -e {go} ]; do sleep 0.05; done; exit 7\n".encode()
        codes.append(connection.execute(script, on_output=lambda *_: begun.set(), cancel=Cancel()))

    thread = threading.Thread(target=run_long)
    thread.start()
    assert begun.wait(30)
    assert answers(connection)
    connection.upload(str(tmp_path / "sent"), b"content", Cancel())
    assert not codes  # it still runs
    go.touch()
    thread.join(30)
    connection.close()
    assert codes == [7]
    assert (tmp_path / "sent").read_bytes() == b"content"


def test_one_session_at_a_time_needs_one_connection(
    hardened: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = count_openings(monkeypatch)
    connection = SshConnection(hardened.endpoint())
    for _ in range(4):
        assert answers(connection)
        time.sleep(0.05)  # the server counts a session until it has noticed its end
    connection.close()
    assert len(opened) <= 2


def test_a_server_without_sessions_is_named(tmp_path: Path) -> None:
    with server(tmp_path, "127.0.0.45", getpass.getuser(), "MaxSessions 0") as closed:
        with pytest.raises(Permanent, match="SSH_NO_SESSION") as caught:
            run(closed.endpoint(), b"")
        assert "MaxSessions" in caught.value.diagnostics[0].remedy


# ---------------------------------------------------------------- keys of an agent


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A real ssh-agent with eight keys that no server knows."""
    path = tmp_path / "agent.sock"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    while not path.exists():
        time.sleep(0.01)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    for number in range(8):
        add_to_agent(write_key(tmp_path / f"foreign{number}", new_host_key()))
    yield path
    process.terminate()
    process.wait(10)


def add_to_agent(key: Path) -> None:
    subprocess.run(["ssh-add", "-q", str(key)], check=True, capture_output=True)


def configure(home: Path, *lines: str) -> None:
    (home / ".ssh" / "config").write_text("\n".join(("Host 127.0.0.*", *lines)) + "\n")


@pytest.mark.usefixtures("agent")
class TestFullAgent:
    """Eight foreign keys in the agent, and a server that takes six tries."""

    def test_a_configured_key_file_is_offered_first(self, hardened: Server, home: Path) -> None:
        configure(home, f"  IdentityFile {hardened.client_key}")
        assert run(hardened.endpoint(key=None), b"exit 3\n")[0] == 3

    def test_a_configured_key_that_the_agent_has_too_is_offered_first(
        self, hardened: Server, home: Path
    ) -> None:
        add_to_agent(hardened.client_key)
        configure(home, f"  IdentityFile {hardened.client_key}")
        assert run(hardened.endpoint(key=None), b"exit 3\n")[0] == 3

    @pytest.mark.parametrize("only", ["yes", "no"])
    def test_a_public_key_file_names_a_key_of_the_agent(
        self, hardened: Server, home: Path, only: str
    ) -> None:
        add_to_agent(hardened.client_key)
        (home / "only.pub").write_text(public_line(hardened.client_key))
        configure(home, "  IdentityFile ~/only.pub", f"  IdentitiesOnly {only}")
        assert run(hardened.endpoint(key=None), b"exit 3\n")[0] == 3

    def test_the_inventory_may_name_a_public_key(self, hardened: Server, tmp_path: Path) -> None:
        add_to_agent(hardened.client_key)
        (tmp_path / "lab.pub").write_text(public_line(hardened.client_key))
        assert run(hardened.endpoint(key=tmp_path / "lab.pub"), b"exit 3\n")[0] == 3

    def test_a_key_with_a_passphrase_is_taken_from_the_agent(self, hardened: Server, tmp_path: Path) -> None:
        add_to_agent(hardened.client_key)
        locked = tmp_path / "locked"
        locked.write_bytes(hardened.client_key.read_bytes())
        locked.chmod(0o600)
        subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", str(locked)], check=True)
        assert run(hardened.endpoint(key=locked), b"exit 3\n")[0] == 3

    def test_with_no_key_named_a_new_connection_goes_on(self, hardened: Server) -> None:
        add_to_agent(hardened.client_key)
        assert run(hardened.endpoint(key=None), b"exit 3\n")[0] == 3

    def test_the_agent_s_socket_may_stand_in_the_configuration(
        self, hardened: Server, home: Path, agent: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        add_to_agent(hardened.client_key)
        monkeypatch.delenv("SSH_AUTH_SOCK")
        configure(home, f"  IdentityAgent {agent}")
        assert run(hardened.endpoint(key=None), b"exit 3\n")[0] == 3

    def test_all_wrong_keys_are_named(self, hardened: Server) -> None:
        with pytest.raises(Permanent, match="SSH_AUTH_FAILED") as caught:
            run(hardened.endpoint(key=None), b"")
        assert sum("SHA256:" in line for line in caught.value.diagnostics[0].evidence) == 8

    def test_a_public_key_without_its_private_key_is_reported(self, hardened: Server, tmp_path: Path) -> None:
        (tmp_path / "lab.pub").write_text(new_host_key().public)
        with pytest.raises(Permanent, match="SSH_KEY_UNREADABLE") as caught:
            run(hardened.endpoint(key=tmp_path / "lab.pub"), b"")
        assert "agent" in caught.value.diagnostics[0].evidence[0]


def public_line(key: Path) -> str:
    return subprocess.run(
        ["ssh-keygen", "-y", "-f", str(key)], check=True, capture_output=True, text=True
    ).stdout
