"""The machine that provision runs on, spoken to like any other host: scripts on the stdin of `sh -s`."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from typing import IO

from provision.values.cancel import Cancel, Interrupted

_PIECE = 64 * 1024
_TICK = 0.5
_GRACE = 10.0


class LocalConnection:
    """Runs scripts in a shell of its own process group.

    Args:
        shell: argument list of the shell that reads scripts from stdin.
    """

    def __init__(self, shell: tuple[str, ...] | None = None) -> None:
        plain = ("/bin/sh", "-s")
        self._shell = shell or (plain if os.geteuid() == 0 else ("sudo", "-n", *plain))
        self._left: list[subprocess.Popen[bytes]] = []
        self.executions = 0

    def execute(
        self, script: bytes, *, on_output: Callable[[bytes, bool], None], cancel: Cancel
    ) -> int | None:
        """Run a script; see `ShellConnection.execute`."""
        self.executions += 1
        process = subprocess.Popen(
            self._shell,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            if not self._converse(process, script, on_output, cancel):
                self._left.append(process)
                return None
            rc = process.wait()
        finally:
            for pipe in (process.stdin, process.stdout, process.stderr):
                _close(_open(pipe))
        return rc if rc >= 0 else None

    def _converse(
        self,
        process: subprocess.Popen[bytes],
        script: bytes,
        on_output: Callable[[bytes, bool], None],
        cancel: Cancel,
    ) -> bool:
        """Send and read until both streams end or the shell is gone; False when the run leaves."""
        pending = memoryview(script)
        with selectors.DefaultSelector() as selector:
            for pipe, stderr in ((process.stdout, False), (process.stderr, True)):
                selector.register(_open(pipe), selectors.EVENT_READ, stderr)
            stdin = _open(process.stdin)
            os.set_blocking(stdin.fileno(), False)
            selector.register(stdin, selectors.EVENT_WRITE, None)
            gone = 0.0
            while len(selector.get_map()) > 0:
                ready = selector.select(_TICK)
                if cancel.leaving:
                    return False
                for key, _ in ready:
                    if key.data is None:
                        pending = _send(stdin.fileno(), pending)
                        if not pending:
                            selector.unregister(stdin)
                            _close(stdin)
                        continue
                    data = os.read(key.fd, _PIECE)
                    if data:
                        on_output(data, key.data)
                    else:
                        selector.unregister(key.fileobj)
                if process.poll() is not None and not ready:
                    # a child that went to the background may hold the pipes for ever
                    gone = gone or time.monotonic()
                    if time.monotonic() - gone >= _TICK:
                        break
        _close(stdin)
        return True

    def upload(self, path: str, data: bytes, cancel: Cancel) -> None:
        """Write a file, 0600, whole or not at all; see `ShellConnection.upload`."""
        if cancel.leaving:
            raise Interrupted
        folder = os.path.dirname(path)  # noqa: PTH120 - a path on the target, whatever it is
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 - the same
        part = f"{path}.part"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(part, path)  # noqa: PTH105 - the same

    def kill_group(self, pgid: int) -> None:
        """TERM to a process group, after 10 s KILL."""
        deadline = time.monotonic() + _GRACE
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pgid, signal.SIGTERM)
            while time.monotonic() < deadline:
                self._reap()
                os.killpg(pgid, 0)
                time.sleep(0.05)
            os.killpg(pgid, signal.SIGKILL)
        self._reap()

    def _reap(self) -> None:
        """Collect shells that a leaving run left behind: a zombie would count as alive."""
        self._left = [process for process in self._left if process.poll() is None]

    def close(self) -> None:
        """Nothing to close."""


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise ValueError("a pipe that was asked for is missing")
    return pipe


def _send(descriptor: int, pending: memoryview) -> memoryview:
    try:
        return pending[os.write(descriptor, pending[:_PIECE]) :]
    except BlockingIOError:
        return pending
    except BrokenPipeError:
        return pending[:0]


def _close(pipe: IO[bytes]) -> None:
    with contextlib.suppress(OSError):
        pipe.close()
