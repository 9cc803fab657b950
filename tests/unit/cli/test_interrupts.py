from __future__ import annotations

import os
import signal
import threading

import pytest

from provision.cli.interrupts import DRAINING, LEAVING, interrupts
from provision.cli.prompts import line
from provision.values.cancel import Cancel


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_drains_and_the_second_leaves(number: signal.Signals) -> None:
    cancel = Cancel()
    shown: list[str] = []
    with interrupts(cancel, shown.append):
        os.kill(os.getpid(), number)
        assert (cancel.draining, cancel.leaving) == (True, False)
        os.kill(os.getpid(), number)
        assert cancel.leaving
    assert shown == [DRAINING, LEAVING]


def test_former_signal_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with interrupts(Cancel(), print):
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_another_thread_leaves_signals_alone() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with interrupts(Cancel(), print):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def test_ctrl_c_at_a_question_ends_the_command_and_not_only_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_prompt: str) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return "y\n"

    monkeypatch.setattr("provision.cli.prompts._read", read)
    cancel = Cancel()
    with interrupts(cancel, print), pytest.raises(KeyboardInterrupt):
        line("Apply this plan? ")
    assert not cancel.draining
