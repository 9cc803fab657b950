from __future__ import annotations

import threading
from pathlib import Path

import pytest

from provision.engine import workers
from provision.values.cancel import Cancel, Interrupted
from tests.unit.engine.fakes import FakeRole, FakeSite, on_own, own


def test_a_blocked_driver_does_not_hold_a_run_that_must_leave(tmp_path: Path) -> None:
    site = FakeSite([FakeRole("r", own(a="1"), on_own())], state=tmp_path)
    planned = site.plan()
    never = site.blocks["n1/ssh"] = threading.Event()
    cancel = Cancel()
    done: list[int] = []

    def run() -> None:
        done.append(site.apply(planned=planned, cancel=cancel).exit_code)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    cancel.leave()
    thread.join(timeout=30)
    assert done == [130]
    never.set()


def test_a_blocked_question_does_not_hold_a_plan_that_must_leave() -> None:
    never = threading.Event()
    cancel = Cancel()
    started = threading.Event()

    def work(_item: int) -> None:
        started.set()
        never.wait()

    def leave() -> None:
        started.wait()
        cancel.leave()

    threading.Thread(target=leave, daemon=True).start()
    with pytest.raises(Interrupted):
        workers.each([1, 2], work, cancel)
    never.set()


def test_a_drained_run_ends_what_runs_and_begins_nothing_new(tmp_path: Path) -> None:
    site = FakeSite(
        [FakeRole("r1", own(a="1"), on_own()), FakeRole("r2", own(b="1"), on_own())], state=tmp_path
    )
    cancel = Cancel()
    site.on_set = lambda *_: cancel.drain()
    report = site.apply(cancel=cancel)
    assert report.exit_code == 130
    assert site.outcomes(report) == {"n1: r1": "changed", "n1: r2": "blocked"}
    assert site.hosts["n1/ssh"].values == {"a": "1"}
    assert site.apply().exit_code == 0
