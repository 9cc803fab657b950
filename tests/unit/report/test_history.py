from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from provision.contracts.change import Change, Op
from provision.engine.journal import Journal, run, runs
from provision.engine.model import StepId
from provision.report.history import print_run, print_runs, record
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
    book.change("20260101-abc", STEP, "vm-1/ssh:file:/etc/motd", changes, "failed", 1.5, f"line 1\n{EVIL}")
    book.effect("20260101-abc", "vm-1/ssh", "restart motd.service", "done", 0.5)
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
    found = run(file, "2026")
    assert found is not None
    return found


def test_runs_are_listed_with_how_they_ended(tmp_path: Path) -> None:
    found = [record(each) for each in runs(journal(tmp_path))]
    line = shown(lambda console: print_runs(console, found)).strip()
    assert line.startswith("20260101-abc  2")
    assert line.endswith("apply  lab  1 min 01 s  failed")


def test_without_a_run_the_list_says_so() -> None:
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
    book.change("20260101-abc", STEP, "vm-1/ssh:file:/x", (), "done", 1.0, "\n".join(lines))
    book.effect("20260101-abc", "pve/ssh", "initramfs", "failed", 9.0, "\n".join(lines))
    book.close()
    brief = shown(lambda console: print_run(console, record(row(file))))
    assert "(188 more lines before this one: --full shows all)" in brief
    assert [each for each in lines if each in brief] == lines[188:]
    assert brief.count("said 199;") == 1
    full = shown(lambda console: print_run(console, record(row(file)), full=True))
    assert {full.count(each) for each in lines} == {2}
    assert html_report(record(row(file))).count("said 100;") == 2


def test_a_killed_run_says_what_it_had_begun(tmp_path: Path) -> None:
    text = shown(lambda console: print_run(console, record(row(journal(tmp_path, ended=False)))))
    assert "did not end" in text
    assert "begun last: vm-1: base_os: file /etc/motd" in text


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
