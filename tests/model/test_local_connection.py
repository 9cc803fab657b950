"""Provision's own machine: what a user may not do, the shell does that may, or it fails in words."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from provision.connections.local import LocalConnection
from provision.values.cancel import Cancel, Interrupted
from provision.values.errors import Permanent

SH = ("/bin/sh", "-s")


def _sudo(folder: Path, text: str = 'exec "$@"') -> tuple[str, ...]:
    """Return a shell behind a stand-in for sudo that notes each use."""
    sudo = folder / "sudo"
    sudo.write_text(f"#!/bin/sh\necho used >>{folder}/log\nshift\n{text}\n", encoding="ascii")
    sudo.chmod(0o755)
    return (str(sudo), "-n", *SH)


def test_files_are_written_by_the_shell_that_may(tmp_path: Path) -> None:
    connection = LocalConnection(_sudo(tmp_path))
    path, data = tmp_path / "a b" / "it's x", bytes(range(256)) * 1000
    for content in (data, b""):
        connection.upload(str(path), content, Cancel())
        assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["it's x"]
    assert (tmp_path / "log").read_text() == "used\n" * 2
    assert connection.executions == 0


def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Permanent, match="UPLOAD_FAILED"):
        LocalConnection(SH).upload(f"{tmp_path}/file/x", b"data", Cancel())
    refusing = LocalConnection(_sudo(tmp_path, "echo 'sudo: a password is required' >&2; exit 1"))
    with pytest.raises(Permanent) as raised:
        refusing.upload(f"{tmp_path}/x", b"data" * 100_000, Cancel())
    assert raised.value.diagnostics[0].evidence == ("sudo: a password is required",)
    assert not (tmp_path / "x").exists()


def test_leaving_writes_no_half_of_a_file(tmp_path: Path) -> None:
    cancel = Cancel()
    cancel.leave()
    with pytest.raises(Interrupted):
        LocalConnection(SH).upload(f"{tmp_path}/x", b"data", cancel)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ignored", ["", "trap '' TERM; "])
def test_a_process_group_is_ended_by_the_shell_that_may(
    tmp_path: Path, ignored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provision.connections.local._TERMINATION_SECONDS", 0.3)
    victim = subprocess.Popen(
        ["/bin/sh", "-c", f"{ignored}echo; while :; do sleep 60; done"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert victim.stdout is not None
    victim.stdout.read(1)
    connection = LocalConnection(_sudo(tmp_path))
    connection._abandoned.append(victim)  # as a run that leaves does
    connection.kill_group(victim.pid)
    assert victim.wait() == -(signal.SIGKILL if ignored else signal.SIGTERM)
    victim.stdout.close()
    assert set((tmp_path / "log").read_text().split()) == {"used"}
    connection.kill_group(victim.pid)  # it is gone: nothing to say


def test_a_process_group_that_survives_is_reported(tmp_path: Path) -> None:
    connection = LocalConnection(_sudo(tmp_path, "echo no >&2; exit 1"))
    with pytest.raises(Permanent, match="PROCESS_NOT_ENDED"):
        connection.kill_group(os.getpgrp())
