"""HostDriver over a real OpenSSH server on loopback: cut connections, time limits, large content."""

from __future__ import annotations

import getpass
import hashlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from provision.connections.contracts import SshEndpoint
from provision.connections.keys import new_host_key
from provision.connections.ssh import SshConnection
from provision.contracts.driver import Action, Verdict
from provision.contracts.remedy import Blob, Fix
from provision.hosts.driver import HostDriver
from provision.values.cancel import Cancel
from provision.values.errors import Permanent, ProvisionError, Refused, Transient
from tests.contract.sshd import Server, missing, server, write_key

if missing():
    pytest.skip(missing(), allow_module_level=True)

FRONT = "SetEnv PATH=/opt/front:/usr/bin:/bin"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("sshd"), "127.0.0.46", getpass.getuser(), FRONT) as running:
        yield running


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the developer's own keys, agent and configuration out of the tests."""
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return tmp_path / "home"


def driver(endpoint: SshEndpoint, state: Path, who: str = "me@here") -> HostDriver:
    return HostDriver("n1/ssh", SshConnection(endpoint, "n1/ssh"), {}, who=who, state=str(state))


def fix(script: str, timeout: float = 60.0) -> Action:
    return Action(None, "fix", Fix(script, timeout=timeout))


def test_a_connection_that_breaks_during_a_fix_leaves_it_unknown(host: Server, tmp_path: Path) -> None:
    there = driver(host.endpoint(), tmp_path / "state")
    results = there.act("r1", [fix("echo begun; sleep 1"), fix(":")], [], lambda _: host.cut(), Cancel())
    assert [result.verdict for result in results] == [Verdict.INDETERMINATE, Verdict.NOT_BEGUN]
    assert results[0].handle.isdigit()
    there.close()


def test_a_fix_that_outlives_its_connection_holds_the_lock(host: Server, tmp_path: Path) -> None:
    state, go = tmp_path / "state", tmp_path / "go"
    there = driver(host.endpoint(), state, who="ann@desk")
    waiting = fix(f"echo begun; while [ ! -e {go} ]; do sleep 0.05; done; touch {tmp_path}/ended")
    (result,) = there.act("run-a", [waiting], [], lambda _: host.cut(), Cancel())
    assert result.verdict == Verdict.INDETERMINATE
    with pytest.raises(ProvisionError, match=r"HOST_LOCKED: .* run run-a of ann@desk since 20"):
        driver(host.endpoint(), state).act("run-b", [fix(":")], [], lambda _: None, Cancel())
    go.touch()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            (result,) = driver(host.endpoint(), state).act("run-b", [fix(":")], [], lambda _: None, Cancel())
            break
        except ProvisionError:
            time.sleep(0.1)
    assert result.verdict == Verdict.DONE
    assert (tmp_path / "ended").exists()


def test_a_fix_with_much_output_outlives_its_connection(host: Server, tmp_path: Path) -> None:
    state = tmp_path / "state"
    talk = "i=0; while [ $i -lt 40 ]; do echo line $i; echo line $i >&2; sleep 0.02; i=$((i+1)); done"
    actions = [fix(f"{talk}; touch {tmp_path}/ended"), fix(f"touch {tmp_path}/second")]
    results = driver(host.endpoint(), state).act("r1", actions, [], lambda _: host.cut(), Cancel())
    assert [result.verdict for result in results] == [Verdict.INDETERMINATE, Verdict.NOT_BEGUN]
    assert not (tmp_path / "ended").exists()
    deadline = time.monotonic() + 20
    while not (tmp_path / "ended").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (tmp_path / "ended").exists()
    while time.monotonic() < deadline:
        try:
            driver(host.endpoint(), state).act("r2", [fix(":")], [], lambda _: None, Cancel())
            break
        except ProvisionError:
            time.sleep(0.05)
    assert not (tmp_path / "second").exists()


def test_a_fix_that_takes_too_long_is_ended_by_a_second_channel(host: Server, tmp_path: Path) -> None:
    there = driver(host.endpoint(), tmp_path / "state")
    slow = fix(f"echo $$ >{tmp_path}/pid; sleep 300", timeout=3)
    (result,) = there.act("r1", [slow], [], lambda _: None, Cancel())
    assert result.diagnostic is not None
    assert result.diagnostic.code == "FIX_TIMED_OUT"
    (again,) = there.act("r2", [fix(":")], [], lambda _: None, Cancel())
    assert again.verdict == Verdict.DONE
    there.close()


@pytest.mark.parametrize("known", ["fingerprint", "known_hosts"])
def test_a_host_key_that_changes_after_the_plan_gets_no_change(tmp_path: Path, known: str) -> None:
    """Whoever answers now is not the machine that was looked at: content and secrets do not go there."""
    (tmp_path / "sshd").mkdir()
    with server(tmp_path / "sshd", "127.0.0.47", getpass.getuser()) as there:
        trusted = tmp_path / "known_hosts"
        trusted.write_text(f"[{there.address}]:{there.port} {there.host_key.public}\n")
        by_file = {"fingerprints": (), "known_hosts": trusted}
        asked = driver(there.endpoint(**(by_file if known == "known_hosts" else {})), tmp_path / "state")
        asked.answer(frozenset(), Cancel())
        write_key(there.folder / "host_key", new_host_key())
        there.cut()
        there.stop()
        there.start()
        blob = Blob(hashlib.sha256(b"x" * 70_000).hexdigest(), b"x" * 70_000)
        change = Action(None, "fix", Fix(f"touch {tmp_path}/changed", blobs=(blob,)))
        with pytest.raises(Refused, match="HOST_KEY_CHANGED"):
            asked.act("r1", [change], [], lambda _: None, Cancel())
        asked.close()
    assert not (tmp_path / "changed").exists()
    assert not list((tmp_path / "state").glob("blobs/*"))


def test_large_content_is_resumed(host: Server, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    blob = Blob(hashlib.sha256(data).hexdigest(), data)
    part = tmp_path / "state" / "blobs" / f"{blob.sha256}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(data[:1_000_000])
    there = driver(host.endpoint(), tmp_path / "state")
    action = Action(None, "blob", Fix(f"sha256sum <$PROVISION_BLOBS/{blob.sha256}", blobs=(blob,)))
    (result,) = there.act("r1", [action], [], lambda _: None, Cancel())
    assert result.output == (f"{blob.sha256}  -",)
    assert not part.exists()
    assert there.round_trips == 1
    there.close()


def test_an_upload_that_was_cut_keeps_what_had_arrived(host: Server, tmp_path: Path) -> None:
    path = tmp_path / "state" / "blobs" / "x"
    data = os.urandom(30_000_000)
    connection = SshConnection(host.endpoint())

    def cut_when_some_has_arrived() -> None:
        part = Path(f"{path}.part")
        while not (part.exists() and part.stat().st_size):
            time.sleep(0.005)
        host.cut()

    threading.Thread(target=cut_when_some_has_arrived, daemon=True).start()
    with pytest.raises(Transient, match="HOST_CUT"):
        connection.upload(str(path), data, Cancel())
    assert not path.exists()
    connection.upload(str(path), data, Cancel())
    assert path.read_bytes() == data
    assert path.stat().st_mode & 0o777 == 0o600
    connection.close()


def test_an_upload_to_a_folder_that_cannot_be_made_is_reported(host: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    connection = SshConnection(host.endpoint())
    with pytest.raises(Permanent, match="UPLOAD_FAILED"):
        connection.upload(f"{tmp_path}/file/blobs/x", b"data", Cancel())
    connection.close()


def test_tools_in_front_of_sshd_s_path_win(host: Server, tmp_path: Path) -> None:
    (result,) = driver(host.endpoint(), tmp_path).act(
        "r", [fix('printf "%s\\n" "$PATH"')], [], lambda _: None, Cancel()
    )
    assert result.output[0].startswith("/opt/front:/usr/bin:/bin:/usr/local/sbin:")
