"""A gigabyte of output passes with bounded memory."""

from __future__ import annotations

import tracemalloc

import pytest

from provision.resources.host.frames import KEEP, FrameParser
from provision.values.redaction import Redactor

NONCE = "p0123456789abcdef01234567"
GIGABYTE = 1_000_000_000
LINE = b"progress: 42 % of everything, and the end of the line\n"


@pytest.mark.parametrize("redacted", [False, True])
@pytest.mark.parametrize("kind", ["lines", "one line", "nearly marks"])
def test_a_gigabyte_of_output_stays_small(kind: str, redacted: bool) -> None:
    block = {
        "lines": LINE * 600,
        "one line": b"x" * 32768,
        "nearly marks": (b"\n" + NONCE.encode()[:-1] + b"x e 1 0\n") * 900,
    }[kind]
    redactor = Redactor("a secret that never comes", "-----BEGIN KEY-----\n" + "A" * 1600)
    parser = FrameParser(NONCE, through=redactor.stream if redacted else None)
    parser.feed(b"\n%s b 1\n" % NONCE.encode(), stderr=False)
    # the parser alone takes a second or two; masking costs more, so it gets a tenth
    rounds = GIGABYTE // (10 if redacted else 1) // len(block)
    tracemalloc.start()
    for _ in range(rounds):
        parser.feed(block, stderr=False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    parser.feed(b"\n%s e 1 0\n" % NONCE.encode(), stderr=False)
    parser.finish()
    frame = parser.frame(1)
    assert frame is not None
    assert frame.rc == 0
    assert frame.dropped == rounds * len(block) - 2 * KEEP
    assert frame.stdout[: len(block)] == block
    assert frame.stdout[-len(block) :] == block
    assert peak < 2_000_000
