from __future__ import annotations

import sqlite3
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from provision.api.past_runs import run, runs
from provision.contracts.change import Change, Op
from provision.contracts.driver import Result, Verdict
from provision.engine.journal import Journal
from provision.engine.model import StepId
from provision.report.history import print_run, print_runs, record, time_of_day
from provision.report.html import html_report
from provision.values.diagnostics import Diagnostic
from tests.unit.report.samples import shown

EVIL = "</pre><script>alert(1)</script>\x1b[2J"
STEP = StepId("base_os", "vm-1")


def journal(path: Path, *, ended: bool = True) -> Path:
    file = path / "journal"
    book = Journal(file)
    book.begin("20260101-abc", "lab", "apply", "root@here")
    book.intent("20260101-abc", STEP, "vm-1/ssh", ["file /etc/motd"])
    changes = (
        Change(Op.UPDATE, "content", "a\nb\n", f"a\n{EVIL}\n"),
        Change(Op.CREATE, "mode", None, "0644"),
        Change(Op.UPDATE, "key", "hunter2", "hunter3", secret=True),
    )
    book.change(
        "20260101-abc",
        STEP,
        "vm-1/ssh:file:/etc/motd",
        changes,
        Result(Verdict.FAILED, 1.5, kept=f"line 1\n{EVIL}"),
    )
    book.effect("20260101-abc", "vm-1/ssh", "restart motd.service", Result(Verdict.DONE, 0.5))
    book.problem(
        "20260101-abc", STEP, Diagnostic("FIX_FAILED", f"it failed {EVIL}", "vm-1", evidence=(EVIL,))
    )
    book.step("20260101-abc", StepId("time", "vm-1"), "unchanged", 0.1, "")
    if ended:
        book.step("20260101-abc", STEP, "failed", 2.5, "exit 1")
        book.end("20260101-abc", 61.0, 1, {"vm-1/ssh": 2}, interrupted=False)
    book.close()
    return file


def row(file: Path) -> dict[str, Any]:
    kept = run(file, "2026")
    assert kept is not None
    return kept


def test_runs_are_listed_with_how_they_ended(tmp_path: Path) -> None:
    kept = [record(each) for each in runs(journal(tmp_path))]
    line = shown(lambda console: print_runs(console, kept)).strip()
    assert line.startswith("20260101-abc  2")
    assert line.endswith("apply  lab  1 min 01 s  failed")


def test_an_empty_list_of_runs_says_so() -> None:
    assert shown(lambda console: print_runs(console, [])) == "No run yet.\n"


def test_a_run_is_shown_with_what_failed(tmp_path: Path) -> None:
    text = shown(lambda console: print_run(console, record(row(journal(tmp_path)))))
    assert "vm-1: base_os: failed, 2.5 s: exit 1" in text
    assert "+ mode: 0644" in text
    assert "| line 1" in text
    assert "error FIX_FAILED  vm-1" in text
    assert "1 step unchanged" in text
    assert "hunter" not in text
    assert "\x1b" not in text


def test_all_output_of_changes_and_effects_is_shown_in_full_only(tmp_path: Path) -> None:
    file = journal(tmp_path)
    lines = [f"said {number};" for number in range(200)]
    book = Journal(file)
    book.change(
        "20260101-abc", STEP, "vm-1/ssh:file:/x", (), Result(Verdict.DONE, 1.0, kept="\n".join(lines))
    )
    book.effect("20260101-abc", "pve/ssh", "initramfs", Result(Verdict.FAILED, 9.0, kept="\n".join(lines)))
    book.close()
    brief = shown(lambda console: print_run(console, record(row(file))))
    assert "(188 earlier lines not shown: --full shows all)" in brief
    assert [line for line in lines if line in brief] == lines[188:]
    assert brief.count("said 199;") == 1
    full = shown(lambda console: print_run(console, record(row(file)), full=True))
    assert {full.count(line) for line in lines} == {2}
    assert html_report(record(row(file))).count("said 100;") == 2


def test_a_killed_run_says_what_it_had_begun(tmp_path: Path) -> None:
    text = shown(lambda console: print_run(console, record(row(journal(tmp_path, ended=False)))))
    assert "did not end" in text
    assert "last action begun: vm-1: base_os: file /etc/motd" in text


def check(book: Journal, run: str, name: str, outcome: str, started: float, message: str = "") -> None:
    book.check(
        run,
        name=name,
        subject="vm-1",
        outcome=outcome,
        message=message,
        excused=0,
        started=started,
        seconds=0.5,
    )


def verification(path: Path) -> dict[str, Any]:
    file = path / "journal"
    book = Journal(file)
    book.begin("20260101-def", "lab", "verify", "root@here")
    check(book, "20260101-def", "the clock is right", "proven", 0.0)
    check(book, "20260101-def", "root fills the disk", "failed", 60.0, f"3.9 GiB of 8 GiB\n{EVIL}")
    book.end("20260101-def", 4.0, 3, {}, interrupted=False)
    book.close()
    return row(file)


def test_a_verification_is_shown_with_the_evidence_of_what_failed(tmp_path: Path) -> None:
    run_of_checks = record(verification(tmp_path))
    text = shown(lambda console: print_run(console, run_of_checks))
    assert "verify lab" in text
    assert "1 of 2 checks proven, 1 failed, 0 trivial, 0 unknown, 0 not run" in text
    assert f"{time_of_day(60.0)}  vm-1: root fills the disk" in text
    assert "3.9 GiB of 8 GiB" in text
    assert "the clock is right" not in text
    assert "\x1b" not in text
    assert "the clock is right" in shown(lambda console: print_run(console, run_of_checks, full=True))


def test_the_page_of_a_verification_has_every_check_with_its_time(tmp_path: Path) -> None:
    text = html_report(record(verification(tmp_path)))
    for part in ("the clock is right", "root fills the disk", "3.9 GiB of 8 GiB", time_of_day(60.0)):
        assert part in text
    assert "1 of 2 checks proven" in text
    assert "<script" not in text


def test_a_step_is_shown_with_the_time_when_it_really_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = Journal(tmp_path / "journal", started=1000.0)
    book.begin("20260101-abc", "lab", "apply", "root@here")
    monkeypatch.setattr(time, "time", lambda: 3600.0)
    book.step_begins(STEP)
    monkeypatch.setattr(time, "time", lambda: 9000.0)
    book.step("20260101-abc", STEP, "changed", 42.0, "")
    book.close()
    kept = record(row(tmp_path / "journal"))
    assert (kept.started, kept.steps[0].started) == (1000.0, 3600.0)
    line = f"{time_of_day(3600.0)} vm-1: base_os: changed, 42 s"
    assert line in shown(lambda console: print_run(console, kept))
    assert time_of_day(3600.0) in html_report(kept)


def test_a_journal_of_an_earlier_version_is_read_and_written_on(tmp_path: Path) -> None:
    file = journal(tmp_path)
    with sqlite3.connect(file) as database:
        database.execute("DROP TABLE checks")
        database.execute("ALTER TABLE steps DROP COLUMN started")
    assert record(row(file)).steps[-1].started is None
    book = Journal(file)
    book.begin("20260102-abc", "lab", "verify", "root@here")
    check(book, "20260102-abc", "the clock is right", "proven", 5.0)
    book.close()
    kept = run(file, "20260102")
    assert kept is not None
    assert record(kept).checks[0].started == 5.0


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [name for name, _ in attrs if name in {"src", "href", "action", "onclick", "onload"}]


def test_the_page_needs_nothing_from_elsewhere_and_runs_nothing(tmp_path: Path) -> None:
    text = html_report(record(row(journal(tmp_path))))
    page = Page()
    page.feed(text)
    assert "script" not in page.tags
    assert page.links == []
    assert "url(" not in text
    assert "http://" not in text
    assert "https://" not in text
    assert "\x1b" not in text
    assert "hunter" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_the_page_has_everything_of_the_run(tmp_path: Path) -> None:
    text = html_report(record(row(journal(tmp_path))))
    for part in (
        "apply lab: failed",
        "base_os",
        "exit 1",
        "FIX_FAILED",
        "/etc/motd",
        "restart motd.service",
        "line 1",
    ):
        assert part in text
