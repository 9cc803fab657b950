from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from provision.lab.bootslot import hold, slot_files
from provision.lab.locks import take


@dataclass
class Machine:
    """A machine that boots when the test says so."""

    lab: Path
    alive: bool = True
    begun: threading.Event = field(default_factory=threading.Event)
    booted: threading.Event = field(default_factory=threading.Event)
    result: list[bool] = field(default_factory=list)

    def pid(self) -> int | None:
        return 1 if self.alive else None

    def boot(self, deadline: float = 60) -> threading.Thread:
        def run() -> None:
            self.result.append(hold(cast("Any", self), self.begun.set, self.booted.is_set, deadline))

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.sleep
    monkeypatch.setattr(time, "sleep", lambda _: real(0.001))


def is_full(lab: Path) -> bool:
    slot = take(slot_files(lab), 0)
    if slot is not None:
        os.close(slot)
    return slot is None


def test_the_third_machine_begins_only_when_one_of_two_has_booted(tmp_path: Path) -> None:
    machines = [Machine(tmp_path) for _ in range(3)]
    threads = [machine.boot() for machine in machines[:2]]
    assert all(machine.begun.wait(30) for machine in machines[:2])
    assert is_full(tmp_path)
    threads.append(machines[2].boot())
    assert not machines[2].begun.wait(0.05)
    machines[1].booted.set()
    assert machines[2].begun.wait(30)
    assert not machines[0].booted.is_set(), "the first one still boots"
    assert is_full(tmp_path)
    for machine in machines:
        machine.booted.set()
    for thread in threads:
        thread.join(30)
    assert [machine.result for machine in machines] == [[True]] * 3
    assert not is_full(tmp_path)


@pytest.mark.parametrize(("alive", "deadline"), [(False, 60), (True, 0)])
def test_a_machine_that_died_or_hangs_gives_its_slot_back(
    tmp_path: Path, alive: bool, deadline: float
) -> None:
    machine = Machine(tmp_path, alive)
    machine.boot(deadline).join(30)
    assert machine.begun.is_set()
    assert machine.result == [False]
    assert not is_full(tmp_path)


def test_a_machine_that_cannot_begin_gives_its_slot_back(tmp_path: Path) -> None:
    def begin() -> None:
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - bare, and raised by the line above
        hold(cast("Any", Machine(tmp_path)), begin, lambda: True)
    assert not is_full(tmp_path)
