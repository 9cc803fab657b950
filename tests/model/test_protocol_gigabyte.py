"""A gigabyte of output passes with bounded memory, through what the driver uses: masking and live lines."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from provision.hosts.protocol.deadlines import Limit
from provision.hosts.protocol.execution import Execution
from provision.hosts.protocol.frames import KEEP
from provision.hosts.protocol.live_output import Live
from provision.values.cancel import Cancel
from provision.values.redaction import Redactor

NONCE = "p0123456789abcdef01234567"
GIGABYTE = 1_000_000_000
BLOCKS = {
    "lines": b"progress: 42 % of everything, and the end of the line\n" * 600,
    "one line": b"x" * 32768,
    "nearly marks": (b"\n" + NONCE.encode()[:-1] + b"x e 1 0\n") * 900,
}


def resident() -> int:
    """Return the bytes of memory that this process has; tracing each allocation would take a minute."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


class Talker:
    """A connection to a host that says one frame of many blocks."""

    executions = 0

    def __init__(self, block: bytes, rounds: int) -> None:
        self.block = block
        self.rounds = rounds
        self.largest = 0

    def execute(self, script: bytes, *, on_output: Callable[[bytes, bool], None], cancel: Cancel) -> int:
        del script, cancel
        on_output(b"\n%s b 1\n" % NONCE.encode(), False)
        for turn in range(self.rounds):
            on_output(self.block, False)
            if turn % 500 == 0:
                self.largest = max(self.largest, resident())
        on_output(b"\n%s e 1 0\n" % NONCE.encode(), False)
        return 0


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("lines", GIGABYTE),
        ("one line", GIGABYTE),
        # Each of its lines may begin a mark: half a minute a gigabyte, too long for each run.
        ("nearly marks", GIGABYTE // 10),
    ],
)
def test_a_gigabyte_of_output_stays_small(kind: str, size: int) -> None:
    block, said = BLOCKS[kind], list[str]()
    rounds = size // len(block)
    redactor = Redactor("a secret that never comes", "-----BEGIN KEY-----\n" + "A" * 1600)
    talker = Talker(block, rounds)
    execution = Execution(
        cast("Any", talker),
        NONCE,
        {1: Limit(3600.0)},
        1,
        Cancel(),
        greeting=Limit(3600.0),
        keep=KEEP,
        effects={},
        redactor=redactor,
        live=Live(said.append),
    )
    before = resident()
    execution.run(b"")
    frame = execution.frame(1)
    assert frame is not None
    assert frame.rc == 0
    assert frame.dropped == rounds * len(block) - 2 * KEEP
    assert frame.stdout[: len(block)] == block
    assert frame.stdout[-len(block) :] == block
    assert talker.largest - before < 20_000_000
    assert bool(said) is (kind != "one line"), "what has no end of line is no line"
