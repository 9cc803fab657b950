"""The machine that provision runs on, used like any other host: scripts on the stdin of `sh -s`."""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from provision.connections.upload import COMMAND, RC_LOCKED, UploadLockedError, opening
from provision.values.cancel import Cancel, Interrupted
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent

_CHUNK = 64 * 1024
_KEPT = 4096
_POLL_SECONDS = 0.5
_TERMINATION_SECONDS = 10.0


class LocalConnection:
    """Runs scripts in a shell of its own process group.

    Args:
        shell: argument list of the shell that reads scripts from stdin, by `-s` as its last word.
    """

    def __init__(self, shell: tuple[str, ...] | None = None) -> None:
        root_shell = ("/bin/sh", "-s")
        self._shell = shell or (root_shell if os.geteuid() == 0 else ("sudo", "-n", *root_shell))
        self._abandoned: list[subprocess.Popen[bytes]] = []
        self.uses_sudo = "sudo" in (Path(word).name for word in self._shell[:1])
        self.executions = 0

    def execute(
        self, script: bytes, *, on_output: Callable[[bytes, bool], None], cancel: Cancel
    ) -> int | None:
        """Run a script; see `ShellConnection.execute`."""
        self.executions += 1
        return self._run(self._shell, script, on_output, cancel)

    def _run(
        self,
        argv: tuple[str, ...],
        data: bytes,
        on_output: Callable[[bytes, bool], None],
        cancel: Cancel,
    ) -> int | None:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=os.environ | {"LC_ALL": "C"},
        )
        try:
            if not self._exchange(process, data, on_output, cancel):
                self._abandoned.append(process)
                return None
            rc = process.wait()
        finally:
            for pipe in (process.stdin, process.stdout, process.stderr):
                _close(_require_pipe(pipe))
        return rc if rc >= 0 else None

    def _exchange(
        self,
        process: subprocess.Popen[bytes],
        data: bytes,
        on_output: Callable[[bytes, bool], None],
        cancel: Cancel,
    ) -> bool:
        """Send and read until both streams end or the shell is gone; False when the run leaves."""
        pending = memoryview(data)
        with selectors.DefaultSelector() as selector:
            for pipe, stderr in ((process.stdout, False), (process.stderr, True)):
                selector.register(_require_pipe(pipe), selectors.EVENT_READ, stderr)
            stdin = _require_pipe(process.stdin)
            os.set_blocking(stdin.fileno(), False)
            selector.register(stdin, selectors.EVENT_WRITE, None)
            exited_at = 0.0
            while len(selector.get_map()) > 0:
                ready = selector.select(_POLL_SECONDS)
                if cancel.leaving:
                    return False
                for key, _ in ready:
                    if key.data is None:
                        pending = _send(stdin.fileno(), pending)
                        if not pending:
                            selector.unregister(stdin)
                            _close(stdin)
                        continue
                    chunk = os.read(key.fd, _CHUNK)
                    if chunk:
                        on_output(chunk, key.data)
                    else:
                        selector.unregister(key.fileobj)
                if process.poll() is not None and not ready:
                    # a child in the background may keep the pipes open for ever
                    exited_at = exited_at or time.monotonic()
                    if time.monotonic() - exited_at >= _POLL_SECONDS:
                        break
        _close(stdin)
        return True

    def upload(self, path: str, data: bytes | memoryview, cancel: Cancel, *, lock: str = "") -> None:
        """Write a file, 0600, whole or not at all; see `ShellConnection.upload`."""
        if cancel.leaving:
            raise Interrupted
        output, errors = bytearray(), bytearray()

        def on_output(chunk: bytes, stderr: bool) -> None:
            stream = errors if stderr else output
            stream.extend(chunk[: _KEPT - len(stream)])

        # the shell as what may write there: a user's own process may not
        argv = (*self._shell[:-1], "-c", *shlex.split(COMMAND)[3:])
        rc = self._run(argv, opening(path, len(data), lock, fresh=True) + data, on_output, cancel)
        if cancel.leaving:
            raise Interrupted
        if rc == RC_LOCKED and output.startswith(b"locked\n"):
            raise UploadLockedError(bytes(output).partition(b"\n")[2])
        if rc != 0:
            raise _failed("UPLOAD_FAILED", f"{path} could not be written", bytes(errors))

    def kill_group(self, pgid: int) -> None:
        """TERM to a process group, after 10 s KILL.

        Raises:
            Permanent: the signals could not be sent.
        """
        deadline = time.monotonic() + _TERMINATION_SECONDS
        self._signal("TERM", pgid)
        while self._is_alive(pgid) and time.monotonic() < deadline:
            time.sleep(0.05)
        if self._is_alive(pgid):
            self._signal("KILL", pgid)
        self._reap()

    def _signal(self, name: str, pgid: int) -> None:
        """Send a signal by the shell: its children may belong to another user."""
        errors = bytearray()
        script = f"kill -{name} -{int(pgid)}\n".encode()
        rc = self._run(self._shell, script, lambda chunk, _: errors.extend(chunk), Cancel())
        if rc != 0 and self._is_alive(pgid):
            raise _failed("PROCESS_NOT_ENDED", f"process group {pgid} could not be terminated", bytes(errors))

    def _is_alive(self, pgid: int) -> bool:
        self._reap()
        try:
            os.killpg(pgid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True  # it belongs to another user
        return True

    def _reap(self) -> None:
        """Collect shells that an interrupted run abandoned: a zombie counts as alive."""
        self._abandoned = [process for process in self._abandoned if process.poll() is None]

    def close(self) -> None:
        """Do nothing: there is no connection."""


def _failed(code: str, summary: str, errors: bytes) -> Permanent:
    return Permanent(
        Diagnostic(
            code,
            summary,
            evidence=tuple(errors.decode("utf-8", "replace").splitlines()[-5:]),
            remedy="run as root or as a user with passwordless sudo, and check the free space",
        )
    )


def _require_pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise ValueError("the process has no pipe")
    return pipe


def _send(descriptor: int, pending: memoryview) -> memoryview:
    try:
        return pending[os.write(descriptor, pending[:_CHUNK]) :]
    except BlockingIOError:
        return pending
    except BrokenPipeError:
        return pending[:0]


def _close(pipe: IO[bytes]) -> None:
    with contextlib.suppress(OSError):
        pipe.close()
