"""One execution of a framed script over a connection."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping

from provision.connections.contracts import ShellConnection
from provision.contracts.effect import EffectClass
from provision.contracts.query import Frame
from provision.hosts.protocol.deadlines import Deadlines, Limit
from provision.hosts.protocol.frames import FrameParser
from provision.hosts.protocol.greeting import Hello, read_hello
from provision.hosts.protocol.live_output import Live
from provision.hosts.protocol.script import HELLO
from provision.values.cancel import Cancel
from provision.values.errors import ProvisionError
from provision.values.redaction import Redactor


class Execution:
    """One script on its way: its frames, their times, their deadlines.

    Args:
        connection: to the host.
        nonce: of the script's marks.
        limits: by frame.
        bye: the last frame.
        cancel: the run's.
        greeting: for the time until the first frame.
        keep: bytes kept at each end of each stream of a frame.
        effects: the known effect classes by name.
        redactor: masks secrets in all output, or None.
        live: receives output while it comes, or None.
        on_end: called when a frame has ended, or None.
    """

    def __init__(
        self,
        connection: ShellConnection,
        nonce: str,
        limits: Mapping[int, Limit],
        bye: int,
        cancel: Cancel,
        *,
        greeting: Limit,
        keep: int,
        effects: Mapping[str, EffectClass],
        redactor: Redactor | None = None,
        live: Live | None = None,
        on_end: Callable[[int], None] | None = None,
    ) -> None:
        self._on_end = on_end
        self._connection = connection
        self._cancel = cancel
        self._bye = bye
        self._effects = effects
        self._began: dict[int, float] = {}
        self._ended: dict[int, float] = {}
        self._over = 0.0
        self.hello: Hello | None = None
        self.heard = 0.0
        self.rc: int | None = None
        self.killed = False
        self.parser = FrameParser(
            nonce,
            keep=keep,
            through=None if redactor is None else redactor.stream,
            on_begin=self._begin,
            on_end=self._end,
            on_output=None if live is None else live.output,
        )
        sent = connection.executions
        self.deadlines = Deadlines(cancel, limits, greeting, lambda: connection.executions > sent)

    def run(self, script: bytes) -> None:
        """Send the script and read until it ends, or end it when its time is up or the run leaves."""
        self.rc = self._connection.execute(script, on_output=self._output, cancel=self.deadlines)
        if self.rc is None and (self.expired is not None or self._cancel.leaving):
            self._kill()
        self._over = time.monotonic()
        self.parser.finish()

    def frame(self, index: int) -> Frame | None:
        """Return a frame, None if it never began."""
        return self.parser.frame(index)

    def took(self, index: int) -> float:
        """Return how many seconds a frame took, or took until the connection ended."""
        began = self._began.get(index)
        return 0.0 if began is None else self._ended.get(index, self._over) - began

    @property
    def expired(self) -> int | None:
        """Which frame took too long (-1: the greeting), None if none did."""
        return self.deadlines.expired

    def _output(self, data: bytes, stderr: bool) -> None:
        self.deadlines.noise()
        self.parser.feed(data, stderr)

    def _begin(self, index: int) -> None:
        self._began[index] = time.monotonic()
        self.deadlines.begin(index)

    def _end(self, index: int) -> None:
        self._ended[index] = time.monotonic()
        self.deadlines.end()
        if index == self._bye:
            self.deadlines.finish()
        if index == HELLO:
            self.heard = time.time()
            frame = self.parser.frame(HELLO)
            if frame is not None:
                self.hello = read_hello(frame, self._effects)
        if self._on_end is not None:
            self._on_end(index)

    def _kill(self) -> None:
        """End what runs on the host, by a second channel; where that fails too, leave the connection."""
        if self.hello is not None and self.hello.pgid > 1:
            with contextlib.suppress(ProvisionError):
                self._connection.kill_group(self.hello.pgid)
                self.killed = True
        if not self.killed:
            self._connection.close()
