from __future__ import annotations

import io
import json

from provision.report.progress import JsonLines, LiveProgress, PlainProgress
from provision.report.style import make_console
from provision.values import events
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


def said(stream: io.StringIO) -> list[str]:
    return [line[9:] for line in stream.getvalue().splitlines()]


def test_a_log_has_a_dated_line_for_what_matters() -> None:
    progress, stream = plain(Clock())
    for event in EXAMPLES:
        progress(event)
    assert said(stream) == [
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
    assert said(stream) == [
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
    assert said(stream)[1:] == [r"vm-1: base_os: still running, 10 s: Unpacking linux\x1b[0m ..."]


def test_a_beginning_is_not_told_after_what_was_done() -> None:
    clock = Clock()
    progress, stream = plain(clock)
    progress(started())
    progress(
        events.ChangeMade(run="r", subject="vm-1", role="base_os", key="vm-1/ssh:file:/a", verdict="done")
    )
    clock.now += 2
    progress.tick()
    assert said(stream) == ["vm-1: base_os: file /a: done"]


def test_what_ended_is_silent() -> None:
    clock = Clock()
    progress, stream = plain(clock)
    progress(started())
    progress(events.StepEnded(run="r", subject="vm-1", role="base_os", outcome="changed", seconds=1))
    clock.now += 60
    progress.tick()
    assert said(stream) == ["vm-1: base_os: changed, 1.0 s"]


def test_what_is_unchanged_at_once_is_not_said() -> None:
    progress, stream = plain(Clock())
    for seconds in (0.1, 2.0):
        progress(started())
        progress(
            events.StepEnded(run="r", subject="vm-1", role="base_os", outcome="unchanged", seconds=seconds)
        )
    assert said(stream) == ["vm-1: base_os: unchanged, 2.0 s"]


def test_notices_come_out_even_when_the_run_ends_at_once() -> None:
    progress, stream = plain(Clock())
    with progress:
        progress.notice("interrupted")
    assert said(stream) == ["interrupted"]


def test_json_is_one_event_a_line_and_nothing_else() -> None:
    stream, notices = io.StringIO(), io.StringIO()
    with JsonLines(stream, notices) as progress:
        for event in EXAMPLES:
            progress(event)
        progress.notice("interrupted")
    assert [json.loads(line)["type"] for line in stream.getvalue().splitlines()] == [
        each.type for each in EXAMPLES
    ]
    assert notices.getvalue() == "interrupted\n"


def live(clock: Clock, height: int = 20) -> LiveProgress:
    console = make_console(Encoded("utf-8"), width=80)
    console.height = height
    return LiveProgress(console, clock)


def table(progress: LiveProgress) -> list[str]:
    console = make_console(Encoded("utf-8"), width=80)
    with console.capture() as capture:
        console.print(progress.table())
    return [line.rstrip() for line in capture.get().splitlines()]


def test_the_table_has_a_row_for_what_runs() -> None:
    clock = Clock()
    progress = live(clock)
    progress(started("pve", "image", 360))
    clock.now += 3
    progress(started("vm-1", "base_os"))
    progress(events.StepProgress(run="r", subject="vm-1", role="base_os", line="Unpacking " + "x" * 200))
    clock.now += 2
    rows = table(progress)
    assert rows[0].split() == ["pve", "image", "5", "s", "(usually", "6", "min)"]
    assert rows[1].startswith("vm-1  base_os  2 s")
    assert max(len(row) for row in rows) <= 80


def test_the_table_stays_on_the_screen() -> None:
    progress = live(Clock(), height=10)
    for number in range(50):
        progress(started(f"n{number}"))
    rows = table(progress)
    assert len(rows) == 8
    assert rows[-1] == "and 43 more"


def test_the_table_loses_what_ended() -> None:
    progress = live(Clock())
    progress(started())
    progress(events.StepEnded(run="r", subject="vm-1", role="base_os", outcome="changed", seconds=1))
    assert table(progress) == []
