from __future__ import annotations

import io
import json

from provision.report.progress import Awaited, JsonLines, LiveProgress, PlainProgress, nothing_awaited
from provision.report.style import make_console
from provision.values import events
from provision.values.diagnostics import Diagnostic, Severity
from tests.unit.report.samples import Encoded
from tests.unit.report.test_schema import EXAMPLES


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def started(subject: str = "vm-1", role: str = "base_os", usually: float = 0.0) -> events.StepStarted:
    return events.StepStarted(run="r", subject=subject, role=role, usually=usually)


def plain(clock: Clock) -> tuple[PlainProgress, io.StringIO]:
    stream = Encoded("utf-8")
    return PlainProgress(make_console(stream), clock, wall=lambda: 0.0), stream


def printed(stream: io.StringIO) -> list[str]:
    return [line[9:] for line in stream.getvalue().splitlines()]


def test_a_log_has_a_dated_line_for_what_matters() -> None:
    progress, stream = plain(Clock())
    for event in EXAMPLES:
        progress(event)
    assert printed(stream) == [
        "apply lab: run r, 1 subject, journal /j",
        "pve: image: image x: done",
        "pve/ssh: initramfs: done, 2.5 s",
        "pve: image: changed, 1.0 s",
        "vm-1: CODE: summary",
        "    | a",
        "CODE: without a source",
    ]


def test_a_silent_step_says_every_ten_seconds_that_it_still_runs() -> None:
    clock = Clock()
    progress, stream = plain(clock)
    progress(started(usually=360))
    for _ in range(25):
        clock.now += 1
        progress.tick()
    assert printed(stream) == [
        "vm-1: base_os: begun (usually 6 min)",
        "vm-1: base_os: still running, 10 s, usually 6 min",
        "vm-1: base_os: still running, 20 s, usually 6 min",
    ]


def test_the_heartbeat_has_the_last_line_of_output() -> None:
    clock = Clock()
    progress, stream = plain(clock)
    progress(started())
    progress(
        events.StepProgress(run="r", subject="vm-1", role="base_os", line="Unpacking linux\x1b[0m ...\n")
    )
    clock.now += 10
    progress.tick()
    assert printed(stream)[1:] == [r"vm-1: base_os: still running, 10 s: Unpacking linux\x1b[0m ..."]


def test_a_step_is_not_announced_after_its_first_change() -> None:
    clock = Clock()
    progress, stream = plain(clock)
    progress(started())
    progress(
        events.ChangeMade(run="r", subject="vm-1", role="base_os", key="vm-1/ssh:file:/a", verdict="done")
    )
    clock.now += 2
    progress.tick()
    assert printed(stream) == ["vm-1: base_os: file /a: done"]


def test_an_ended_step_prints_no_heartbeat() -> None:
    clock = Clock()
    progress, stream = plain(clock)
    progress(started())
    progress(events.StepEnded(run="r", subject="vm-1", role="base_os", outcome="changed", seconds=1))
    clock.now += 60
    progress.tick()
    assert printed(stream) == ["vm-1: base_os: changed, 1.0 s"]


def test_a_step_that_is_unchanged_at_once_prints_nothing() -> None:
    progress, stream = plain(Clock())
    for seconds in (0.1, 2.0):
        progress(started())
        progress(
            events.StepEnded(run="r", subject="vm-1", role="base_os", outcome="unchanged", seconds=seconds)
        )
    assert printed(stream) == ["vm-1: base_os: unchanged, 2.0 s"]


def test_notices_come_out_even_when_the_run_ends_at_once() -> None:
    progress, stream = plain(Clock())
    with progress:
        progress.notice("interrupted")
    assert printed(stream) == ["interrupted"]


def test_json_is_one_event_a_line_and_nothing_else() -> None:
    stream, notices = io.StringIO(), io.StringIO()
    with JsonLines(stream, notices) as progress:
        for event in EXAMPLES:
            progress(event)
        progress.notice("interrupted")
    assert [json.loads(line)["type"] for line in stream.getvalue().splitlines()] == [
        example.type for example in EXAMPLES
    ]
    assert notices.getvalue() == "interrupted\n"


def live(clock: Clock, height: int = 20, awaited: Awaited = nothing_awaited) -> LiveProgress:
    console = make_console(Encoded("utf-8"), width=80)
    console.height = height
    return LiveProgress(console, clock, awaited)


def check(total: int) -> events.CheckDone:
    return events.CheckDone(run="r", name="it is so", subject="vm-1", outcome="proven", total=total)


def table(progress: LiveProgress) -> list[str]:
    console = make_console(Encoded("utf-8"), width=80)
    with console.capture() as capture:
        console.print(progress.table())
    blank, *rows = [line.rstrip() for line in capture.get().splitlines()]
    assert blank == "", "it is apart from what has scrolled away above"
    return rows


def test_the_table_has_a_row_for_what_runs() -> None:
    clock = Clock()
    progress = live(clock)
    progress(started("pve", "image", 360))
    clock.now += 3
    progress(started("vm-1", "base_os"))
    progress(events.StepProgress(run="r", subject="vm-1", role="base_os", line="Unpacking " + "x" * 200))
    clock.now += 2
    head, *rows = table(progress)
    assert head == "0:05"
    assert rows[0].split() == ["pve", "image", "0:05", "(usually", "6", "min)"]
    assert rows[1].startswith("vm-1  base_os  0:02")
    assert max(len(row) for row in rows) <= 80


def test_the_table_stays_on_the_screen() -> None:
    progress = live(Clock(), height=10)
    for number in range(50):
        progress(started(f"n{number}"))
    rows = table(progress)
    assert len(rows) == 7
    assert rows[-1] == "and 45 more"


def test_an_ended_step_leaves_the_table() -> None:
    progress = live(Clock())
    progress(started())
    progress(events.StepEnded(run="r", subject="vm-1", role="base_os", outcome="changed", seconds=1))
    assert table(progress) == ["0:00"]


def test_the_head_says_how_far_the_run_is_and_what_is_awaited() -> None:
    clock = Clock()
    systems = ["vm-2/ssh", "pve/ssh", "vm-1/ssh", "vm-3/ssh", "vm-4/ssh"]
    progress = live(clock, awaited=lambda: systems)
    assert table(progress) == ["0:00, waiting for pve/ssh, vm-1/ssh, vm-2/ssh and 2 more"]
    progress(events.RunStarted(run="r", inventory="lab", verb="apply", steps=12))
    for subject in ("vm-1", "vm-2"):
        progress(started(subject))
        progress(events.StepEnded(run="r", subject=subject, role="base_os", outcome="changed", seconds=1))
    progress(events.StepEnded(run="r", subject="pve", role="reboot", outcome="changed", seconds=1))
    systems.clear()
    clock.now += 61
    assert table(progress) == ["apply lab: 2 of 12 steps, 1:01"]
    progress(check(3))
    assert table(progress) == ["apply lab: 2 of 12 steps, 1 of 3 checks, 1:01"]


def test_every_line_of_the_table_moves_while_a_step_is_silent() -> None:
    clock = Clock()
    progress = live(clock)
    progress(started(usually=360))
    progress(events.StepProgress(run="r", subject="vm-1", role="base_os", line="Unpacking linux"))
    before = table(progress)
    clock.now += 75
    first = table(progress)
    clock.now += 1
    assert all(old != new for old, new in zip(first, table(progress), strict=True))
    assert before[1].endswith("Unpacking linux")
    assert first[1].endswith("[1:15 ago] Unpacking linux")


def test_a_log_says_which_systems_have_not_answered() -> None:
    clock = Clock()
    stream = Encoded("utf-8")
    progress = PlainProgress(make_console(stream), clock, lambda: 0.0, awaited=lambda: ["pve/ssh"])
    for _ in range(25):
        clock.now += 1
        progress.tick()
    assert printed(stream) == ["waiting for pve/ssh"] * 2


def test_a_step_that_failed_does_not_repeat_the_problem_that_is_above_it() -> None:
    progress, stream = plain(Clock())
    problem = Diagnostic("IMAGE_UNPINNED", "the image has no digest", "pve")
    progress(events.Problem(run="r", diagnostic=problem.as_json()))
    ended = events.StepEnded(
        run="r", subject="pve", role="image", outcome="failed", seconds=3.0, reason=problem.summary
    )
    progress(ended)
    assert printed(stream) == ["pve: IMAGE_UNPINNED: the image has no digest", "pve: image: failed, 3.0 s"]


def test_warnings_of_one_code_are_one_line() -> None:
    progress, stream = plain(Clock())
    for number in range(100):
        warning = Diagnostic("CLOCK_SKEW", f"{number} s ahead", f"n{number}", severity=Severity.WARNING)
        progress(events.Problem(run="r", diagnostic=warning.as_json()))
    progress.tick()
    assert printed(stream) == [
        "n0, n1, n2, n3, n4, n5, n6, n7 and 92 more: CLOCK_SKEW: 0 s ahead (and 99 more messages)"
    ]
