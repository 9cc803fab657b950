from __future__ import annotations

from pathlib import Path

import pytest

from provision.cli import main
from provision.engine.journal import Journal


def runs_of(state: Path, *ids: str) -> None:
    state.mkdir()
    book = Journal(state / "journal.sqlite")
    for identifier in ids:
        book.begin(identifier, "lab", "apply", "me@here")
    book.close()


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROVISION_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.mark.parametrize("command", ["show", "report"])
@pytest.mark.parametrize(
    ("ids", "name", "code", "shown"),
    [
        ((), "last", "RUN_UNKNOWN", "there is no run yet"),
        (("r1",), "x", "RUN_UNKNOWN", "there is no run that begins with 'x'"),
        (("r1",), "", "RUN_UNKNOWN", "there is no run that begins with ''"),
        (("r1", "r2"), "r", "RUN_AMBIGUOUS", "2 runs begin with 'r': r2, r1"),
        (("r1", "r2", "r3", "r4"), "r", "RUN_AMBIGUOUS", "4 runs begin with 'r': r4, r3, r2, ..."),
    ],
)
def test_an_unknown_or_ambiguous_run_is_refused(
    command: str,
    ids: tuple[str, ...],
    name: str,
    code: str,
    shown: str,
    state: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs_of(state, *ids)
    assert main.main([command, name]) == 64
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == [f"error {code}", f"  {shown}"]


def test_the_beginning_of_an_id_and_last_find_a_run(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs_of(state, "r1", "s1")
    assert main.main(["show", "r"]) == 0
    assert "r1" in capsys.readouterr().out
    assert main.main(["show", "last"]) == 0
    assert "s1" in capsys.readouterr().out


def test_an_unknown_id_is_answered_with_what_keeps_a_plan(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs_of(state, "20260101-000000-aaaaaa")
    assert main.main(["show", "20260102-000000-bbbbbb"]) == 64
    shown = " ".join(capsys.readouterr().err.split())
    assert "A plan is not a run" in shown
    assert "provision plan INVENTORY --out FILE" in shown
