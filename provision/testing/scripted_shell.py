"""A shell connection that returns the bytes that a test gives it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from provision.connections.contracts import ShellConnection
from provision.values.cancel import Cancel, Interrupted

_NONCE = re.compile(rb"'\\n%s b 0\\nprotocol [^']*' ([0-9a-z]+) ")
_FRAMES = re.compile(rb"^provision_b ([0-9]+)$", re.MULTILINE)

BOOT = "00000000-0000-4000-8000-000000000001"
"""Boot id that a scripted host reports if none is given."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a frame prints, and how it ends (`rc` None: it never ends)."""

    stdout: bytes = b""
    stderr: bytes = b""
    rc: int | None = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What one execution gets.

    Args:
        frames: by index from 1 on; frames of the script that are not named end with status 0 and no output.
        hello: lines of the greeting after the standard ones; None for no greeting.
        boot: boot id.
        epoch: the host's clock.
        pgid: process group.
        before: bytes before the greeting (a banner), on both streams.
        raw: everything on stdout and stderr instead of frames; `%NONCE%` becomes the nonce.
        piece: bytes per read, 0 for all at once.
        cut: bytes of stdout (stderr in proportion) after which the connection is cut; None for never.
        rc: exit status.
        silence: seconds without output at the end; shorter when the caller leaves.
        error: raised instead of connecting.
    """

    frames: dict[int, Said] = field(default_factory=dict)
    hello: Sequence[str] | None = ()
    boot: str = BOOT
    epoch: int = 1_700_000_000
    pgid: int = 4242
    before: bytes = b""
    raw: tuple[bytes, bytes] | None = None
    piece: int = 0
    cut: int | None = None
    rc: int | None = 0
    silence: float = 0.0
    error: Exception | None = None


class ScriptedShell(ShellConnection):
    """Implements `ShellConnection`: gives its answers in order, the last one again and again.

    Args:
        answers: what the executions get.

    `scripts`, `uploads`, `killed` and `closed` record the calls.
    """

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers) or [Answer()]
        self.executions = 0
        self.scripts: list[bytes] = []
        self.uploads: dict[str, bytes] = {}
        self.killed: list[int] = []
        self.closed = 0

    def execute(
        self, script: bytes, *, on_output: Callable[[bytes, bool], None], cancel: Cancel
    ) -> int | None:
        """Record the script and give the next answer."""
        answer = self._answers[min(self.executions, len(self._answers) - 1)]
        if answer.error is not None:
            raise answer.error
        self.executions += 1
        self.scripts.append(script)
        stdout, stderr = said(script, answer)
        if answer.cut is not None:
            share = answer.cut / len(stdout) if stdout else 0
            stdout, stderr = stdout[: answer.cut], stderr[: int(len(stderr) * share)]
        for stream, data in ((False, stdout), (True, stderr)):
            for piece in _pieces(data, answer.piece):
                on_output(piece, stream)
        if answer.silence:
            left = answer.silence
            while left > 0 and not cancel.leaving:
                with contextlib.suppress(Interrupted):  # a transport returns then
                    cancel.wait(0.01)
                left -= 0.01
        if cancel.leaving or answer.cut is not None:
            return None
        return answer.rc

    def upload(self, path: str, data: bytes | memoryview, cancel: Cancel, *, lock: str = "") -> None:
        """Record what was sent."""
        del lock
        if cancel.leaving:
            raise Interrupted
        self.uploads[path] = bytes(data)

    def kill_group(self, pgid: int) -> None:
        """Record whom to end."""
        self.killed.append(pgid)

    def close(self) -> None:
        """Count it."""
        self.closed += 1


def nonce_of(script: bytes) -> bytes:
    """Return the nonce of a script that `script.py` wrote.

    Raises:
        ValueError: it is not such a script.
    """
    match = _NONCE.search(script)
    if match is None:
        raise ValueError("the script has no nonce")
    return match[1]


def frames_of(script: bytes) -> list[int]:
    """Return the indexes of a script's frames after the greeting, in order, the farewell last."""
    return sorted({int(index) for index in _FRAMES.findall(script)})


def said(script: bytes, answer: Answer) -> tuple[bytes, bytes]:
    """Return both streams in full for a script."""
    nonce = nonce_of(script)
    if answer.raw is not None:
        stdout, stderr = (data.replace(b"%NONCE%", nonce) for data in answer.raw)
        return answer.before + stdout, answer.before + stderr
    parts: list[tuple[int, Said]] = []
    if answer.hello is not None:
        lines = (
            "protocol 1",
            "uid 0",
            f"pgid {answer.pgid}",
            f"boot {answer.boot}",
            f"epoch {answer.epoch}",
            "uname Linux 6.1.0 x86_64",
            *answer.hello,
        )
        parts.append((0, Said("".join(f"{line}\n" for line in lines).encode())))
        frames = frames_of(script)
        stops = b"\nprovision_lock\n" in script
        for index in frames:
            frame = answer.frames.get(index, Said())
            parts.append((index, frame))
            if frame.rc is None:
                break
            if frame.rc and stops:
                parts.append((frames[-1], Said()))
                break
    stdout, stderr = (
        b"".join(_framed(nonce, index, data.stdout if out else data.stderr, data.rc) for index, data in parts)
        for out in (True, False)
    )
    return answer.before + stdout, answer.before + stderr


def _framed(nonce: bytes, index: int, data: bytes, rc: int | None) -> bytes:
    end = b"" if rc is None else b"\n%s e %d %d\n" % (nonce, index, rc)
    return b"\n%s b %d\n%s%s" % (nonce, index, data, end)


def _pieces(data: bytes, size: int) -> Iterable[bytes]:
    if not size:
        return (data,) if data else ()
    return (data[start : start + size] for start in range(0, len(data), size))
