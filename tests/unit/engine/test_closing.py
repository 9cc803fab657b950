from __future__ import annotations

import threading
import time

import pytest

from provision.connections.contracts import LocalEndpoint
from provision.contracts.system import SystemSpec
from provision.engine import session as sessions
from provision.engine.session import Session


class Stuck:
    """A driver whose connection is being opened for ever: its close waits for that."""

    system = "a/ssh"
    round_trips = 0

    def __init__(self) -> None:
        self.forever = threading.Event()

    def close(self) -> None:
        self.forever.wait()


def test_a_connection_that_cannot_be_closed_does_not_keep_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "PATIENCE", 0.1)
    stuck = Stuck()
    spec = SystemSpec("a/ssh", "host", "a", {}, lambda _: LocalEndpoint())
    session = Session({"a/ssh": spec}, lambda _spec, _endpoint: stuck)  # type: ignore[arg-type,return-value]  # only closed
    session.systems["a/ssh"].driver = stuck  # type: ignore[assignment]  # as above
    closing = threading.Thread(target=session.close, daemon=True)
    began = time.monotonic()
    closing.start()
    closing.join(10)
    assert not closing.is_alive(), f"still closing after {time.monotonic() - began:.0f} s"
    stuck.forever.set()
