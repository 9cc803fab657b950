from __future__ import annotations

import pytest
from pydantic import SecretStr

from provision.hosts.protocol.deadlines import Deadlines, Limit
from provision.hosts.protocol.frames import FrameParser
from provision.hosts.protocol.live_output import INTERVAL, Live
from provision.values.cancel import Cancel, Interrupted
from provision.values.redaction import Redactor


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_at_most_four_lines_a_second_are_shown() -> None:
    lines: list[str] = []
    clock = Clock()
    live = Live(lines.append, clock=clock)
    for number in range(100):
        live.output(2, b"line %d\n" % number)
        clock.now += 0.01
    assert len(lines) == 4
    live.close()
    assert lines[0] == "line 0"
    assert lines[-1] == "line 99"


def test_only_whole_lines_are_shown_and_of_several_the_last() -> None:
    lines: list[str] = []
    clock = Clock()
    live = Live(lines.append, clock=clock)
    live.output(2, b"half")
    assert lines == []
    live.output(2, b" line\nsecond\nthi")
    clock.now += INTERVAL
    live.output(2, b"rd\n")
    assert lines == ["second", "third"]


def test_a_progress_bar_shows_its_last_state() -> None:
    lines: list[str] = []
    Live(lines.append).output(2, b"10%\r50%\r90%\r\n")
    assert lines == ["90%"]


def test_a_line_without_end_is_bounded() -> None:
    lines: list[str] = []
    live = Live(lines.append)
    for _ in range(100):
        live.output(2, b"x" * 1000)
    live.output(2, b"\n")
    assert len(lines[0]) <= 4096


def test_a_line_is_shown_before_anything_follows_it() -> None:
    lines: list[str] = []
    live = Live(lines.append)
    parser = FrameParser("pabc", on_output=live.output)
    parser.feed(b"\npabc b 2\nworking\n", stderr=False)
    assert lines == ["working"]


def deadlines(clock: Clock, limit: Limit, *, sent: bool = True) -> Deadlines:
    return Deadlines(Cancel(), {2: limit}, Limit(10.0), lambda: sent, clock)


def test_connecting_does_not_count_for_the_greeting() -> None:
    clock = Clock()
    watch = deadlines(clock, Limit(5.0), sent=False)
    clock.now += 1000
    assert not watch.leaving


def test_a_missing_greeting_times_out() -> None:
    clock = Clock()
    watch = deadlines(clock, Limit(5.0))
    assert not watch.leaving
    clock.now += 9.9
    assert not watch.leaving
    clock.now += 0.2
    assert watch.leaving
    assert watch.expired == -1


def test_a_frame_has_its_own_time() -> None:
    clock = Clock()
    watch = deadlines(clock, Limit(5.0))
    watch.begin(2)
    clock.now += 4.9
    watch.noise()
    assert not watch.leaving
    clock.now += 0.2
    assert watch.leaving
    assert (watch.expired, watch.reason) == (2, "not done within 5 s")


def test_quiet_counts_from_the_last_output() -> None:
    clock = Clock()
    watch = deadlines(clock, Limit(100.0, 5.0))
    watch.begin(2)
    for _ in range(5):
        clock.now += 4.0
        watch.noise()
        assert not watch.leaving
    clock.now += 5.0
    assert watch.leaving
    assert watch.reason == "no output for 5 s"


def test_nothing_times_out_between_frames_or_without_a_limit() -> None:
    clock = Clock()
    watch = deadlines(clock, Limit(5.0))
    watch.begin(2)
    watch.end()
    clock.now += 1000
    assert not watch.leaving
    watch.begin(7)
    clock.now += 1000
    assert not watch.leaving


def test_the_end_of_the_run_ends_the_execution() -> None:
    parent = Cancel()
    watch = Deadlines(parent, {}, Limit(10.0), lambda: True)
    assert not watch.draining
    watch.drain()
    assert parent.draining
    parent.leave()
    assert watch.leaving
    assert watch.expired is None
    with pytest.raises(Interrupted):
        watch.wait(1.0)


def test_streams_held_open_after_the_last_frame_are_no_timeout() -> None:
    clock = Clock()
    watch = deadlines(clock, Limit(5.0))
    watch.finish()
    assert not watch.leaving
    clock.now += 1.1
    assert watch.leaving
    assert (watch.left, watch.expired) == (True, None)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_line_whose_end_may_begin_a_secret_is_shown_once(size: int) -> None:
    """What the filter holds back of an ended line is shown with it, and not again with the next one."""
    redactor = Redactor()
    redactor.add(SecretStr("4-and-more"))
    lines: list[str] = []
    clock = Clock()
    live = Live(lines.append, clock=clock)
    parser = FrameParser("n0nce", through=redactor.stream, on_output=live.output)
    said = b"\nn0nce b 2\nGenerating amd64\nn0nce e 2 0\n\nn0nce b 3\nx 4-and-more\nlast\nn0nce e 3 0\n"
    for start in range(0, len(said), size):
        clock.now += INTERVAL
        parser.feed(said[start : start + size], stderr=False)
    parser.finish()
    live.close()
    assert [line for line in lines if line.startswith("4")] == []
    assert lines[-1] == "last"
    if size < 8:
        assert "Generating amd64" in lines
        assert "4-and-more" not in " ".join(lines)
