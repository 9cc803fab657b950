"""A verification is a run: it is listed, shown and reported with its checks, however it ended."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from provision.api.past_runs import run, runs
from provision.cli import main
from provision.values.cancel import Cancel, Interrupted
from provision.verify.model import CheckOutcome, CheckResult, VerifyReport
from tests.model.verify.test_silence import UNREACHED, fleet, verified

FAILED = CheckResult("root fills the disk", "ours", CheckOutcome.FAILED, "3.9 GiB of 8 GiB", seconds=0.5)


def checks(*_: Any) -> VerifyReport:
    """Stand in for pytest: hand one failed check over, as the real ones do."""
    on_result = _[-1]
    on_result(FAILED)
    return VerifyReport((FAILED,), 0.5)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_STATE", str(tmp_path / "state"))


def test_a_verification_is_listed_shown_and_reported_with_its_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model, _ = fleet(tmp_path, {})
    model.verifier = checks
    assert verified(model).count(CheckOutcome.FAILED) == 1
    assert main.main(["runs"]) == 0
    assert main.main(["show", "last"]) == 0
    assert main.main(["report", "last", "-o", "page.html"]) == 0
    shown = capsys.readouterr().out
    assert "verify  fleet" in shown
    assert "verification failed" in shown
    assert "ours: root fills the disk" in shown
    for text in (shown, (tmp_path / "page.html").read_text()):
        assert "3.9 GiB of 8 GiB" in text


def test_a_verification_of_a_silent_system_keeps_why_it_was_silent(tmp_path: Path) -> None:
    model, _ = fleet(tmp_path, {"ours/ssh": UNREACHED})
    verified(model)
    (row,) = runs(tmp_path / "state" / "journal.sqlite")
    kept = run(tmp_path / "state" / "journal.sqlite", row["id"])
    assert kept is not None
    assert (row["verb"], row["exit_code"]) == ("verify", 1)
    assert "nobody is let in" in kept["problems"][0]["diagnostic"]


def test_an_interrupted_verification_says_so_in_the_journal(tmp_path: Path) -> None:
    model, _ = fleet(tmp_path, {})
    cancel = Cancel()

    def leave(*_: Any) -> VerifyReport:
        cancel.leave()
        return VerifyReport(())

    model.verifier = leave
    site = model.site()
    with pytest.raises(Interrupted):
        site.verify(cancel=cancel)
    site.close()
    (row,) = runs(tmp_path / "state" / "journal.sqlite")
    assert (row["exit_code"], row["interrupted"]) == (130, 1)


def test_a_verification_goes_on_where_no_journal_can_be_written(tmp_path: Path) -> None:
    model, _ = fleet(tmp_path, {})
    model.verifier = checks
    (tmp_path / "state" / "journal.sqlite").mkdir(parents=True)
    assert verified(model).count(CheckOutcome.FAILED) == 1
    problems = [event.as_json()["diagnostic"] for event in model.events if event.type == "problem"]
    assert [problem["code"] for problem in problems] == ["JOURNAL_UNWRITABLE"]  # type: ignore[index]  # JSON
    assert stat.S_ISDIR((tmp_path / "state" / "journal.sqlite").stat().st_mode)
