"""SshConnection against a real OpenSSH server on loopback."""

from __future__ import annotations

import gc
import getpass
import os
import re
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paramiko
import pytest

from provision.connections import ssh_open
from provision.connections.contracts import SshEndpoint
from provision.connections.keys import new_host_key
from provision.connections.ssh import SshConnection
from provision.connections.ssh_pool import SshPool
from provision.connections.ssh_target import resolve
from provision.values.cancel import Cancel, Interrupted
from provision.values.errors import Permanent, Refused, Transient
from tests.contract.sshd import Server, missing, server, write_key

if missing():
    pytest.skip(missing(), allow_module_level=True)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("sshd"), "127.0.0.41", getpass.getuser()) as running:
        yield running


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the developer's own keys, agent and configuration out of the tests."""
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return tmp_path / "home"


def run(endpoint: SshEndpoint, script: bytes) -> tuple[int | None, bytes, bytes]:
    connection = SshConnection(endpoint)
    streams: dict[bool, bytes] = {False: b"", True: b""}

    def take(data: bytes, stderr: bool) -> None:
        streams[stderr] += data

    try:
        rc = connection.execute(script, on_output=take, cancel=Cancel())
    finally:
        connection.close()
    return rc, streams[False], streams[True]


def count_openings(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list that grows by one with every attempt to connect."""
    tries: list[object] = []
    real = ssh_open.open_transport

    def counted(*arguments: Any) -> Any:
        tries.append(arguments)
        return real(*arguments)

    monkeypatch.setattr("provision.connections.ssh.open_transport", counted)
    return tries


# ---------------------------------------------------------------- bytes


def test_both_streams_and_the_status_come_back(host: Server) -> None:
    assert run(host.endpoint(), b"echo out; echo err >&2; exit 7\n") == (7, b"out\n", b"err\n")


def test_a_large_script_and_large_output_pass_at_the_same_time(host: Server) -> None:
    noise = b"head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2\n"
    rc, out, err = run(host.endpoint(), noise + b": " + b"x" * 5_000_000 + b"\n" + noise)
    assert (rc, len(out), len(err)) == (0, 6_000_000, 6_000_000)


def test_many_executions_share_one_connection(host: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = count_openings(monkeypatch)
    connection = SshConnection(host.endpoint())
    for _ in range(3):
        assert connection.execute(b"exit 0\n", on_output=lambda *_: None, cancel=Cancel()) == 0
    connection.close()
    connection.close()
    assert (connection.executions, len(opened)) == (3, 1)


def test_a_closed_connection_opens_again(host: Server) -> None:
    connection = SshConnection(host.endpoint())
    for _ in range(2):
        assert connection.execute(b"exit 0\n", on_output=lambda *_: None, cancel=Cancel()) == 0
        connection.close()


def test_a_connection_that_died_while_idle_opens_again(host: Server) -> None:
    connection = SshConnection(host.endpoint())
    assert connection.execute(b"exit 0\n", on_output=lambda *_: None, cancel=Cancel()) == 0
    host.cut()
    assert connection.execute(b"exit 0\n", on_output=lambda *_: None, cancel=Cancel()) == 0
    connection.close()


def test_a_background_child_does_not_hold_up_the_end(host: Server) -> None:
    begun = time.monotonic()
    rc, out, _ = run(host.endpoint(), b"sleep 60 & echo $!; exit 0\n")
    os.kill(int(out), 9)
    assert rc == 0
    assert time.monotonic() - begun < 50


# ---------------------------------------------------------------- trust


def test_an_unknown_host_key_is_refused_with_the_command_to_accept_it(host: Server, tmp_path: Path) -> None:
    accept = "`provision trust site.yaml n1/ssh {key}`"
    with pytest.raises(Refused, match="HOST_KEY_UNKNOWN") as caught:
        run(host.endpoint(fingerprints=(), known_hosts=tmp_path / "none", accept=accept), b"")
    diagnostic = caught.value.diagnostics[0]
    assert host.host_key.fingerprint in diagnostic.summary
    assert f"`provision trust site.yaml n1/ssh {host.host_key.fingerprint}`" in diagnostic.remedy


def test_known_hosts_cannot_overrule_a_wrong_fingerprint(host: Server, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(f"[{host.address}]:{host.port} {host.host_key.public}\n")
    wrong = new_host_key().fingerprint
    with pytest.raises(Refused, match="HOST_KEY_CHANGED") as caught:
        run(host.endpoint(fingerprints=(wrong,), known_hosts=known, accept="write {key} at x:3"), b"")
    (problem,) = caught.value.diagnostics
    assert wrong in problem.evidence[0]
    assert problem.remedy.endswith(f"write {host.host_key.fingerprint} at x:3")


def test_a_known_host_key_is_accepted(host: Server, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(f"[{host.address}]:{host.port} {host.host_key.public}\n")
    assert run(host.endpoint(fingerprints=(), known_hosts=known), b"exit 3\n")[0] == 3


def test_the_user_s_own_known_hosts_is_the_default(host: Server, home: Path) -> None:
    (home / ".ssh" / "known_hosts").write_text(f"[{host.address}]:{host.port} {host.host_key.public}\n")
    assert run(host.endpoint(fingerprints=()), b"exit 3\n")[0] == 3


def test_a_connection_comes_from_where_ssh_would_let_it_come_from(host: Server, home: Path) -> None:
    """On a controller with several addresses the firewall, or the VPN, may know only one of them."""
    (home / ".ssh" / "config").write_text("Host *\n BindAddress 127.0.0.99\n BindInterface lo\n")
    assert run(host.endpoint(), b'echo "${SSH_CLIENT%% *}"\n')[1] == b"127.0.0.99\n"


@pytest.mark.parametrize("option", ["BindAddress 203.0.113.7", "BindInterface none0", "AddressFamily inet6"])
def test_a_source_that_does_not_exist_is_no_other_source(host: Server, home: Path, option: str) -> None:
    (home / ".ssh" / "config").write_text(f"Host *\n {option}\n")
    with pytest.raises(Transient, match="HOST_UNREACHABLE"):
        run(host.endpoint(), b"exit 0\n")


def test_a_changed_host_key_is_refused(host: Server, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(f"[{host.address}]:{host.port} {new_host_key().public}\n")
    with pytest.raises(Refused, match="HOST_KEY_CHANGED") as caught:
        run(host.endpoint(fingerprints=(), known_hosts=known), b"")
    assert f"`ssh-keygen -f {known} -R '[{host.address}]:{host.port}'`" in caught.value.diagnostics[0].remedy


def test_a_revoked_host_key_is_refused(host: Server, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    line = f"[{host.address}]:{host.port} {host.host_key.public}\n"
    known.write_text(f"{line}@revoked {line}")
    with pytest.raises(Refused, match="HOST_KEY_REVOKED"):
        run(host.endpoint(fingerprints=(), known_hosts=known), b"")


def test_waiting_never_waits_for_another_host_key(host: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = count_openings(monkeypatch)
    with pytest.raises(Refused, match="HOST_KEY_CHANGED"):
        run(host.endpoint(fingerprints=(new_host_key().fingerprint,), wait=60.0), b"")
    assert len(tries) == 1


# ---------------------------------------------------------------- login


def test_a_key_that_the_host_does_not_know_is_no_login(host: Server, tmp_path: Path) -> None:
    key = write_key(tmp_path / "other", new_host_key())
    with pytest.raises(Permanent, match="SSH_AUTH_FAILED") as caught:
        run(host.endpoint(key=key), b"")
    assert "PRIVATE KEY" not in repr(caught.value.diagnostics)


def test_a_key_file_that_is_missing_is_named(host: Server, tmp_path: Path) -> None:
    with pytest.raises(Permanent, match="SSH_KEY_UNREADABLE") as caught:
        run(host.endpoint(key=tmp_path / "none"), b"")
    assert str(tmp_path / "none") in caught.value.diagnostics[0].summary


def test_default_keys_are_found(host: Server, home: Path) -> None:
    (home / ".ssh" / "id_ed25519").write_bytes(host.client_key.read_bytes())
    assert run(host.endpoint(key=None), b"exit 3\n")[0] == 3


def test_a_missing_key_is_reported(host: Server) -> None:
    with pytest.raises(Permanent, match="SSH_AUTH_FAILED") as caught:
        run(host.endpoint(key=None), b"")
    assert "no key was found" in caught.value.diagnostics[0].evidence[0]


# ---------------------------------------------------------------- reaching it


def test_a_host_that_refuses_connections_is_unreachable(host: Server) -> None:
    with pytest.raises(Transient, match="HOST_UNREACHABLE"):
        run(host.endpoint(address="127.0.0.42"), b"")


def test_a_name_that_does_not_resolve_is_unreachable(host: Server) -> None:
    with pytest.raises(Transient, match="HOST_UNREACHABLE"):
        run(host.endpoint(address="no-such-host.invalid"), b"")


def test_waiting_goes_on_until_the_host_is_up(tmp_path: Path) -> None:
    with server(tmp_path, "127.0.0.43", getpass.getuser()) as late:
        late.stop()
        threading.Timer(1.2, late.start).start()
        assert run(late.endpoint(wait=30.0), b"exit 3\n")[0] == 3


def test_leaving_ends_the_wait(host: Server) -> None:
    cancel = Cancel()
    threading.Timer(0.3, cancel.leave).start()
    connection = SshConnection(host.endpoint(address="127.0.0.42", wait=300.0))
    with pytest.raises(Interrupted):
        connection.execute(b"", on_output=lambda *_: None, cancel=cancel)


def test_the_user_s_configuration_applies(host: Server, home: Path) -> None:
    (home / ".ssh" / "config").write_text(
        f"Host nickname\n  HostName {host.address}\n  Port {host.port}\n  IdentityFile {host.client_key}\n"
    )
    endpoint = SshEndpoint("nickname", host.user, fingerprints=(host.host_key.fingerprint,))
    assert run(endpoint, b"exit 3\n")[0] == 3


def test_a_jump_host_is_passed_and_its_key_is_checked_too(host: Server, home: Path) -> None:
    jump = f"{host.user}@{host.address}:{host.port}"
    (home / ".ssh" / "id_ed25519").write_bytes(host.client_key.read_bytes())
    with pytest.raises(Refused, match="HOST_KEY_UNKNOWN") as caught:
        run(host.endpoint(jump=jump, accept="provision trust x n1/ssh {key}"), b"")
    remedy = caught.value.diagnostics[0].remedy  # of the jump host, which is no system
    assert "provision trust" not in remedy
    assert f"ssh -o UserKnownHostsFile={home / '.ssh' / 'known_hosts'} -p {host.port}" in remedy
    (home / ".ssh" / "known_hosts").write_text(f"[{host.address}]:{host.port} {host.host_key.public}\n")
    assert run(host.endpoint(jump=jump), b"exit 3\n")[0] == 3


RELAY = """
import os, selectors, socket, sys
there = socket.create_connection((sys.argv[1], int(sys.argv[2])))
with selectors.DefaultSelector() as ready:
    ready.register(0, selectors.EVENT_READ)
    ready.register(there, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            data = os.read(0, 65536) if key.fd == 0 else there.recv(65536)
            if not data:
                sys.exit()
            there.sendall(data) if key.fd == 0 else os.write(1, data)
"""


def test_large_output_passes_a_proxy_command(host: Server, home: Path) -> None:
    relay = home / "relay.py"
    relay.write_text(RELAY)
    command = f"{sys.executable} {relay} {host.address} {host.port}"
    (home / ".ssh" / "config").write_text(f"Host far\n  ProxyCommand {command}\n")
    rc, out, _ = run(host.endpoint(address="far"), b"head -c 1000000 /dev/zero; exit 3\n")
    assert (rc, len(out)) == (3, 1_000_000)


# ---------------------------------------------------------------- many of them


def answers(connection: SshConnection) -> bool:
    return connection.execute(b"exit 0\n", on_output=lambda *_: None, cancel=Cancel()) == 0


def readers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if isinstance(thread, paramiko.Transport)}


def test_idle_connections_close_for_others_and_open_again(
    host: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = count_openings(monkeypatch)
    pool = SshPool(size=2)
    connections = [SshConnection(host.endpoint(), f"n{index}", pool) for index in range(4)]
    before = readers()
    for connection in connections * 2:
        assert answers(connection)
    assert len(opened) == 8
    assert sum(connection.is_open for connection in connections) == 2
    deadline = time.monotonic() + 20
    while len(readers() - before) > 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(readers() - before) == 2
    for connection in connections:
        connection.close()


def test_a_closed_connection_needs_no_garbage_collection(host: Server) -> None:
    gc.disable()
    try:
        reader = open_and_close(host)
        deadline = time.monotonic() + 20
        while reader() is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert reader() is None
    finally:
        gc.enable()


def open_and_close(host: Server) -> weakref.ref[paramiko.Transport]:
    connection = SshConnection(host.endpoint())
    assert answers(connection)
    reader = weakref.ref(connection._lines[0].chain[-1])
    connection.close()
    return reader


def test_with_room_for_all_nothing_opens_twice(host: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = count_openings(monkeypatch)
    pool = SshPool(size=3)
    connections = [SshConnection(host.endpoint(), f"n{index}", pool) for index in range(3)]
    for connection in connections * 2:
        assert answers(connection)
    assert len(opened) == 3
    for connection in connections:
        connection.close()


def test_a_running_script_keeps_its_connection(host: Server, tmp_path: Path) -> None:
    pool = SshPool(size=1)
    running, other = (SshConnection(host.endpoint(), name, pool) for name in ("n1", "n2"))
    begun, go, codes = threading.Event(), tmp_path / "go", []

    def run_long() -> None:
        script = f"echo begun; while [ ! -e {go} ]; do sleep 0.05; done; exit 7\n".encode()
        codes.append(running.execute(script, on_output=lambda *_: begun.set(), cancel=Cancel()))

    thread = threading.Thread(target=run_long)
    thread.start()
    assert begun.wait(30)
    assert answers(other)
    assert answers(other)
    go.touch()
    thread.join(30)
    assert codes == [7]
    for connection in (running, other):
        connection.close()


STARVED = """
import resource, sys
from pathlib import Path
from provision.connections.contracts import SshEndpoint
from provision.connections.ssh import SshConnection
from provision.values.cancel import Cancel
from provision.values.errors import Permanent
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
connection = SshConnection(SshEndpoint("127.0.0.1", "root", key=Path("key")), "n1/ssh")
try:
    connection.execute(b"", on_output=lambda *_: None, cancel=Cancel())
except Permanent as error:
    print(error)
"""


def test_a_process_with_too_few_descriptors_reports_it() -> None:
    result = subprocess.run([sys.executable, "-c", STARVED], capture_output=True, text=True, check=True)
    assert "TOO_FEW_DESCRIPTORS" in result.stdout
    assert "only 20 files" in result.stdout


def test_a_server_without_our_preferred_algorithms_works(tmp_path: Path) -> None:
    old = ("Ciphers aes256-ctr", "KexAlgorithms ecdh-sha2-nistp521", "MACs hmac-sha2-512")
    with server(tmp_path, "127.0.0.44", getpass.getuser(), *old) as running:
        assert run(running.endpoint(), b"exit 3\n")[0] == 3


def test_the_benchmark_of_many_sessions_gives_figures() -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "ssh_sessions.py"
    command = [sys.executable, str(script), "--sessions", "3", "--rounds", "1"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    figures = (
        r"round 1: 3 sessions: wall [\d.]+ s, CPU [\d.]+ s, memory \d+ MiB, threads \d+, descriptors \d+"
    )
    assert re.fullmatch(figures, output.splitlines()[0])


def test_a_host_key_is_read_without_a_login(host: Server) -> None:
    endpoint = SshEndpoint(host.address, "nobody-at-all", host.port)
    assert ssh_open.shown_fingerprint(resolve(endpoint), "n1/ssh") == host.host_key.fingerprint
    with pytest.raises(Transient, match="HOST_UNREACHABLE"):
        ssh_open.shown_fingerprint(resolve(SshEndpoint("127.0.0.41", "me", 1)), "n1/ssh")
