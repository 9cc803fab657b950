from __future__ import annotations

import json
from pathlib import Path

import pytest

from provision.cli import main
from provision.engine.run_lock import clear_run_lock, run_lock
from provision.values.errors import UsageError
from tests.unit.proxmox.roles.world import INVENTORY


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    file = tmp_path / "site.yaml"
    file.write_text(INVENTORY)
    return file


def lock_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROVISION_STATE", str(tmp_path / "state"))
    return tmp_path / "state" / "site" / "lock"


def test_nothing_to_unlock(
    inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock_of(tmp_path, monkeypatch)
    assert main.main(["unlock", str(inventory)]) == 0
    assert capsys.readouterr().out == "site is not locked.\n"


def test_a_lock_that_is_held_is_left_and_its_holder_named(
    inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = lock_of(tmp_path, monkeypatch)
    with run_lock(lock, "r1", "me@here"):
        before = lock.read_bytes()
        assert main.main(["unlock", str(inventory)]) == 6
        assert lock.read_bytes() == before
    shown = capsys.readouterr().err
    assert "run r1 of me@here" in shown
    assert "kill " in shown
    assert main.main(["unlock", str(inventory)]) == 0
    assert "is not locked.\n" in capsys.readouterr().out


def test_the_entry_of_a_dead_run_is_shown_and_removed(
    inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = lock_of(tmp_path, monkeypatch)
    lock.parent.mkdir(parents=True)
    lock.write_text(json.dumps({"run": "r1", "who": "me@here", "pid": 4, "since": 1.0}))
    assert main.main(["unlock", str(inventory)]) == 0
    assert "run r1 of me@here (process 4," in capsys.readouterr().out
    assert lock.read_bytes() == b""
    with run_lock(lock, "r2", "me@here"):
        pass


@pytest.mark.parametrize("place", ["file", "file/below"])
@pytest.mark.parametrize(
    "argv", [["plan", "SITE"], ["apply", "SITE", "--yes"], ["unlock", "SITE"], ["runs"], ["show", "last"]]
)
def test_a_state_that_cannot_be_kept_is_one_clear_error(
    argv: list[str],
    place: str,
    inventory: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PROVISION_STATE", str(tmp_path / place))
    assert main.main([str(inventory) if argument == "SITE" else argument for argument in argv]) == 64
    shown = " ".join(capsys.readouterr().err.split())
    assert shown.count("error ") == 1
    assert f"STATE_UNUSABLE the state of runs cannot be kept in {tmp_path / place}: " in shown


def test_a_lock_that_cannot_be_made_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="STATE_UNUSABLE"), run_lock(tmp_path / "file" / "lock", "r1", "me"):
        pytest.fail("the run began")
    with pytest.raises(UsageError, match="STATE_UNUSABLE"):
        clear_run_lock(tmp_path / "file" / "lock")
