from __future__ import annotations

import dataclasses
import errno
import os
import sqlite3
import stat
from pathlib import Path

import pytest

from provision.api import past_runs, saved_plan
from provision.contracts.change import Change, Op
from provision.contracts.driver import Result, Verdict
from provision.engine import journal
from provision.engine.model import StepId
from provision.engine.run_lock import clear_run_lock, run_lock
from provision.hosts import host_effects
from provision.report.history import record
from provision.report.style import duration
from provision.values.consent import Consent
from provision.values.diagnostics import Diagnostic
from provision.values.errors import ProvisionError, Refused, UsageError
from provision.values.outcomes import ExitCode
from tests.unit.engine.fake_hosts import Host, Item
from tests.unit.engine.fakes import FakeRole, FakeSite, on_own, own

STEP = StepId("base", "n1")
DIGESTS = saved_plan.Digests(lambda: b"key")


def test_a_run_is_written_down_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    book = journal.Journal(path, lambda text: text.replace("hunter2", "***"))
    book.begin("run-a", "lab", "apply", "me@here")
    book.intent("run-a", STEP, "n1/ssh", ["n1/ssh:file:/x"])
    changes = [
        Change(Op.UPDATE, "content", "old", "hunter2"),
        Change(Op.UPDATE, "key", "s3cret", "s4cret", secret=True),
    ]
    book.change("run-a", STEP, "n1/ssh:file:/x", changes, Result(Verdict.DONE, 1.5, kept="password hunter2"))
    book.effect("run-a", "n1/ssh", "restart x", Result(Verdict.DONE, 0.1, kept="with hunter2"))
    book.problem("run-a", STEP, Diagnostic("X", "hunter2 is wrong"))
    book.step("run-a", STEP, "changed", 2.0, "")
    book.end("run-a", 3.0, 0, {"n1/ssh": 3}, interrupted=False)
    book.close()
    record = past_runs.run(path, "run-")
    assert record is not None
    assert record["exit_code"] == 0
    assert record["changes"][0]["fields"] == (
        '[["~", "content", "old", "***"], ["~", "key", "(secret)", "(secret)"]]'
    )
    assert record["changes"][0]["output"] == "password ***"
    assert record["effects"][0]["output"] == "with ***"
    assert [run["id"] for run in past_runs.runs(path)] == ["run-a"]
    assert past_runs.usually(path, "lab") == {STEP: 2.0}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = path.read_bytes()
    assert b"hunter2" not in content
    assert b"s3cret" not in content


def test_what_is_about_to_begin_is_on_the_disk_before_it_begins(tmp_path: Path) -> None:
    site = FakeSite([FakeRole("base", own(a="1"), on_own())], state=tmp_path)
    seen: list[list[dict[str, object]]] = []

    def on_set(*_: str) -> None:
        record = past_runs.run(tmp_path / "journal.sqlite", "run-1")
        assert record is not None
        seen.append(record["intents"])

    site.on_set = on_set
    site.apply()
    assert [each["what"] for each in seen[0]] == ['["n1/ssh:item:a"]']


def test_a_failed_effect_is_written_down_with_all_of_its_output(tmp_path: Path) -> None:
    host = Host(refuses=frozenset({"restart x.service"}))
    role = FakeRole("r", lambda _: [Item("n1/ssh", "a", "1", restarts="x.service")], on_own())
    site = FakeSite([role], hosts={"n1/ssh": host}, state=tmp_path)
    assert site.apply().exit_code == 1
    record = past_runs.run(tmp_path / "journal.sqlite", "run-1")
    assert record is not None
    assert record["effects"][0]["output"] == "cannot restart x.service: " + "why " * 200


def test_old_journal_without_effect_output_is_read_and_extended(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    database = sqlite3.connect(path)
    database.executescript(journal.SCHEMA.replace(", output TEXT NOT NULL DEFAULT ''", ""))
    database.execute(
        "INSERT INTO runs (id, inventory, verb, started, who) VALUES ('run-0', 'lab', 'apply', 1, 'me')"
    )
    database.execute(
        "INSERT INTO effects (run, system, effect, verdict, seconds) VALUES ('run-0', 'n', 'old', 'done', 1)"
    )
    database.commit()
    database.close()
    before = past_runs.run(path, "run-0")
    assert before is not None
    assert [effect.output for effect in record(before).effects] == [""]
    for _ in range(2):
        book = journal.Journal(path)
        book.effect("run-0", "n", "new", Result(Verdict.FAILED, 1.0, kept="why"))
        book.close()
        assert not book.error
    found = past_runs.run(path, "run-0")
    assert found is not None
    assert [each["output"] for each in found["effects"]] == ["", "why", "why"]


def test_no_run_begins_without_a_journal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    book = journal.Journal(tmp_path / "file" / "journal.sqlite")
    with pytest.raises(ProvisionError) as caught:
        book.begin("run-a", "lab", "apply", "me")
    book.close()
    assert caught.value.diagnostics[0].code == "JOURNAL_UNWRITABLE"
    assert "cannot be written" in book.error


class BrokenJournal(journal.Journal):
    """Takes entries until `broken` is set; then they fail, or never reach the disk."""

    broken = ""

    def _put(self, sql: str, *values: object) -> journal._Entry:
        if self.broken == "fails":
            return super()._put("INSERT INTO nowhere VALUES (1)")
        return journal._Entry(sql, values) if self.broken == "hangs" else super()._put(sql, *values)


@pytest.mark.parametrize("how", ["fails", "hangs"])
def test_an_action_that_is_not_in_the_journal_does_not_begin(how: str, tmp_path: Path) -> None:
    book = BrokenJournal(tmp_path / "journal.sqlite")
    roles = [FakeRole(name, own(**{name: "1"}), on_own(name)) for name in ("first", "second", "third")]
    site = FakeSite(roles, journal=book)

    def break_after_the_first(_system: str, _name: str, _value: str) -> None:
        book.broken, book.patience = how, 10.0 if how == "fails" else 0.01

    site.on_set = break_after_the_first
    report = site.apply()
    assert site.hosts["n1/ssh"].values == {"first": "1"}
    assert site.outcomes(report) == {"n1: first": "changed", "n1: second": "failed", "n1: third": "blocked"}
    assert report.exit_code == 1
    (diagnostic,) = report.steps[1].diagnostics
    assert diagnostic.code == "JOURNAL_UNWRITABLE"
    assert diagnostic.untouched == "the next action was not started"


def test_a_reboot_that_is_not_in_the_journal_does_not_begin(tmp_path: Path) -> None:
    book = BrokenJournal(tmp_path / "journal.sqlite")
    role = FakeRole("r", lambda _: [Item("n1/ssh", "a", "1", boots=host_effects.REBOOT_NODE)], on_own("a"))
    site = FakeSite([role], journal=book, policy={host_effects.REBOOT_NODE: Consent.ALLOW})

    def break_it(_system: str, _name: str, _value: str) -> None:
        book.broken = "fails"

    site.on_set = break_it
    report = site.apply()
    assert site.hosts["n1/ssh"].boot == 1
    assert report.steps[0].diagnostics[0].code == "JOURNAL_UNWRITABLE"


def test_only_one_run_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lab" / "lock"
    with run_lock(path, "run-a", "me@here"):
        with pytest.raises(ProvisionError) as caught, run_lock(path, "run-b", "you@there"):
            pass
        assert caught.value.exit_code is ExitCode.LOCKED
        assert "run-a of me@here" in caught.value.diagnostics[0].summary
    with run_lock(path, "run-b", "you@there"):
        pass


def test_a_full_disk_under_the_run_lock_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("provision.engine.run_lock.os.pwrite", full)
        with pytest.raises(UsageError) as caught, run_lock(tmp_path / "lock", "run-a", "me@here"):
            pass
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.code == "STATE_UNUSABLE"
    assert "No space left on device" in diagnostic.summary
    assert diagnostic.remedy.startswith("free some space there")
    with run_lock(tmp_path / "lock", "run-b", "me@here"):
        pass


def saved(site: FakeSite, digest: str = "d1") -> dict[str, object]:
    planned = site.plan()
    assert site.session is not None
    return saved_plan.content(planned, digest, site.session.snapshots(), DIGESTS)


def two_values(tmp_path: Path) -> FakeSite:
    return FakeSite(
        [FakeRole("base", own(a="1", b="2"), on_own())], hosts={"n1/ssh": Host({"b": "2"})}, state=tmp_path
    )


def test_a_saved_plan_holds_while_nothing_moves(tmp_path: Path) -> None:
    site = two_values(tmp_path)
    path = tmp_path / "plan.json"
    saved_plan.save(path, saved(site), "lab.yaml", "site")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    saved_plan.check(saved_plan.read(path), saved(site))


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("a", "1", "n1: base: changes are others"),
        ("a", "7", "n1: base: changes are others"),
        ("b", "9", "n1: base"),
    ],
)
def test_a_saved_plan_is_refused_when_the_host_moved(
    name: str, value: str, word: str, tmp_path: Path
) -> None:
    site = two_values(tmp_path)
    promise = saved(site)
    site.hosts["n1/ssh"].values[name] = value
    with pytest.raises(Refused) as caught:
        saved_plan.check(promise, saved(site))
    assert caught.value.exit_code is ExitCode.REFUSED
    assert any(word in each for each in caught.value.diagnostics[0].evidence)


def test_answers_about_what_is_as_desired_are_no_part_of_a_saved_plan(tmp_path: Path) -> None:
    # A lease that counts down and an uptime that grows move by themselves, and change nothing.
    content = saved(two_values(tmp_path))
    assert set(content["answers"]) == {"n1/ssh:item:a"}  # type: ignore[call-overload]  # JSON


def test_a_saved_plan_is_refused_when_the_inventory_was_edited(tmp_path: Path) -> None:
    site = two_values(tmp_path)
    with pytest.raises(Refused) as caught:
        saved_plan.check(saved(site, "d1"), saved(site, "d2"))
    assert "inventory" in caught.value.diagnostics[0].evidence[0]


def test_a_saved_plan_holds_no_value(tmp_path: Path) -> None:
    site = FakeSite([FakeRole("base", own(a="hunter2"), on_own())], state=tmp_path)
    assert "hunter2" not in str(saved(site))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": "other", "options": {}}'])
def test_what_is_no_saved_plan_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(UsageError):
        saved_plan.read(path)


def test_options_come_back_from_a_saved_plan(tmp_path: Path) -> None:
    data = saved(two_values(tmp_path))
    assert dataclasses.asdict(saved_plan.options_of(data))["targets"] == ()


@pytest.mark.parametrize("reason", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EIO])
def test_a_folder_whose_files_cannot_be_locked_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    def no_lock(_handle: int, _flags: int) -> None:
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr("fcntl.flock", no_lock)
    with pytest.raises(UsageError) as caught, run_lock(tmp_path / "lock", "run", "me"):
        pytest.fail("the run began without a lock")
    diagnostic = caught.value.diagnostics[0]
    assert (diagnostic.code, str(tmp_path) in diagnostic.summary) == ("STATE_UNUSABLE", True)
    assert ("local disk" in diagnostic.remedy) is (reason != errno.EIO)
    with pytest.raises(UsageError):
        clear_run_lock(tmp_path / "lock")


def test_the_latest_run_is_the_last_one_also_after_the_clock_was_set_back(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    for name, started in (("b", 2000.0), ("a", 1000.0), ("c", 1500.0)):
        book = journal.Journal(path, started=started)
        book.begin(name, "lab", "apply", "me")
        book.close()
    assert [row["id"] for row in past_runs.runs(path)] == ["c", "a", "b"]
    assert duration(-3600) == "0.0 s"
