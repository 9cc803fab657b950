"""SSH to a host: one connection, opened when first needed, with strictly checked host keys."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from provision.connections.contracts import SshEndpoint
from provision.connections.ssh_open import open_transport
from provision.connections.ssh_pool import SshPool, close_all
from provision.connections.ssh_target import Target, resolve
from provision.values.cancel import Cancel, Interrupted
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, ProvisionError, Transient

if TYPE_CHECKING:
    import paramiko

SHELL = "exec /bin/sh -s"
"""The one remote command; the script comes on stdin, so that nothing of it is in any argument list."""

UPLOAD = (
    "exec /bin/sh -c '"
    'IFS= read -r path && IFS= read -r size && umask 077 && mkdir -p "${path%/*}" || exit 1; '
    'if [ -f "$path" ] && [ "$(wc -c <"$path")" -eq "$size" ]; then echo "$size"; exit 0; fi; '
    '[ -f "$path.part" ] || : >"$path.part" || exit 1; '
    'have=$(wc -c <"$path.part"); '
    'if [ "$have" -gt "$size" ]; then : >"$path.part"; have=0; fi; '
    'echo "$have"; cat >>"$path.part" && '
    '[ "$(wc -c <"$path.part")" -eq "$size" ] && sync "$path.part" && mv -f "$path.part" "$path"'
    "'"
)
"""Takes a path and a size as the first two lines of stdin, says how much it has, and takes the rest."""

_PIECE = 256 * 1024
_TICK = 0.5
_GRACE = 10
_LAST_WORDS = 1.0
_RETRY = 1.0


class _Bell(threading.Event):
    """Rings for either stream of a channel.

    paramiko clears the event of a stream that it has emptied; with two streams on one bell that would lose
    the other one's ring, so only `answer` clears it.
    """

    def clear(self) -> None:
        """Stay rung."""

    def answer(self) -> None:
        """Be silent until the next ring."""
        super().clear()


class SshConnection:
    """Implements `ShellConnection`.

    Args:
        endpoint: where and as whom.
        system: name for messages (`vm-1/ssh`); the address if empty.
        pool: what it shares with other connections; nothing if None.
    """

    def __init__(self, endpoint: SshEndpoint, system: str = "", pool: SshPool | None = None) -> None:
        self._endpoint = endpoint
        self._pool = pool or SshPool()
        self._system = system or endpoint.address
        self._lock = threading.Lock()
        self._chain: list[paramiko.Transport] = []
        self._target: Target | None = None
        self._deadline: float | None = None
        self.executions = 0

    # ------------------------------------------------------------ scripts

    def execute(
        self, script: bytes, *, on_output: Callable[[bytes, bool], None], cancel: Cancel
    ) -> int | None:
        """Send a script and hand out what comes back; see `ShellConnection.execute`."""
        with self._pool.use(self, self._system):
            return self._execute(script, on_output, cancel)

    def _execute(self, script: bytes, on_output: Callable[[bytes, bool], None], cancel: Cancel) -> int | None:
        channel = self._channel(cancel)
        self.executions += 1
        bell = _Bell()
        channel.in_buffer.set_event(bell)
        channel.in_stderr_buffer.set_event(bell)
        leaving = False
        try:
            if not _exec(channel, self._command(SHELL)):
                return None
            leaving = not _converse(channel, script, bell, on_output, cancel)
            if leaving or not channel.status_event.is_set() or channel.exit_status < 0:
                return None
            return channel.exit_status
        finally:
            if not leaving:
                _close(channel)

    def _command(self, command: str) -> str:
        if self._endpoint.user == "root" or not self._endpoint.sudo:
            return command
        return command.replace("exec ", "exec sudo -n ", 1)

    def upload(self, path: str, data: bytes, cancel: Cancel) -> None:
        """Write a file, 0600, whole or not at all; what an earlier attempt had sent is not sent again.

        Raises:
            Transient: the connection was cut; the next attempt goes on from there.
            Permanent: the host could not write it.
        """
        with self._pool.use(self, self._system):
            self._upload(path, data, cancel)

    def _upload(self, path: str, data: bytes, cancel: Cancel) -> None:
        channel = self._channel(cancel)
        try:
            channel.settimeout(60.0)
            if not _exec(channel, self._command(UPLOAD)):
                raise self._cut(f"sending {path}")
            channel.sendall(f"{path}\n{len(data)}\n".encode())
            answer = b""
            while not answer.endswith(b"\n") and (piece := channel.recv(64)):
                answer += piece
            if answer.strip().isdigit():
                _send_all(channel, memoryview(data)[int(answer) :], cancel)
            channel.shutdown_write()
            errors = b""
            while piece := channel.recv_stderr(4096):
                errors = (errors + piece)[-4096:]
            channel.status_event.wait(60.0)
        except _lost() as error:
            raise self._cut(f"sending {path}") from error
        finally:
            _close(channel)
        if channel.exit_status == 0:
            return
        if channel.exit_status < 0:
            raise self._cut(f"sending {path}")
        raise Permanent(
            Diagnostic(
                "UPLOAD_FAILED",
                f"{self._system}: {path} could not be written",
                self._system,
                evidence=tuple(errors.decode("utf-8", "replace").splitlines()[-5:]),
                remedy="look at the free space of the host",
            )
        )

    def kill_group(self, pgid: int) -> None:
        """TERM to a process group over a second channel, after 10 s KILL."""
        script = (
            f"g={int(pgid)}; kill -TERM -$g || exit 0; i=0\n"
            f"while [ $i -lt {_GRACE * 10} ] && kill -0 -$g; do i=$((i+1)); sleep 0.1 || sleep 1; done\n"
            "kill -KILL -$g\n"
        )
        with self._pool.use(self, self._system):
            channel = self._channel(Cancel())
            try:
                if _exec(channel, self._command(SHELL)):
                    channel.sendall(f"{{ {script}}} 2>/dev/null\nexit 0\n".encode())
                    channel.shutdown_write()
                    channel.status_event.wait(_GRACE + 5.0)
            except OSError as error:
                raise self._cut("ending a process group") from error
            finally:
                _close(channel)

    # ------------------------------------------------------------ the connection

    def close(self) -> None:
        """End the connection; the next execution opens another one."""
        with self._lock:
            chain = self.detach()
        self._pool.forget(self)
        close_all(chain)

    @property
    def is_open(self) -> bool:
        """Whether it holds a descriptor; see `PooledConnection`."""
        return bool(self._chain)

    def detach(self) -> list[paramiko.Transport]:
        """Give the transports away, to be closed; see `PooledConnection`."""
        chain, self._chain = self._chain, []
        return chain

    def _channel(self, cancel: Cancel) -> paramiko.Channel:
        try:
            return self._transport(cancel).open_session(timeout=60.0)
        except _lost():
            # a connection that died while idle: nothing was sent, so trying again is safe
            self.close()
        try:
            return self._transport(cancel).open_session(timeout=60.0)
        except _lost() as error:
            self.close()
            raise self._cut("opening a channel") from error

    def _transport(self, cancel: Cancel) -> paramiko.Transport:
        with self._lock:
            if self._chain and self._chain[-1].is_active():
                return self._chain[-1]
            close_all(self._chain)
            self._chain = []
            self._chain = self._opened(cancel)
            return self._chain[-1]

    def _opened(self, cancel: Cancel) -> list[paramiko.Transport]:
        if self._target is None:
            self._target = resolve(self._endpoint)
        if self._deadline is None:  # once: who asks again does not wait for the same boot again
            self._deadline = time.monotonic() + self._endpoint.wait
        while True:
            if cancel.leaving:
                raise Interrupted
            try:
                return open_transport(self._target, self._endpoint.fingerprints, self._system, self._pool)
            except Transient:
                if time.monotonic() + _RETRY >= self._deadline:
                    raise
            cancel.wait(_RETRY)

    def _cut(self, doing: str) -> ProvisionError:
        return Transient(
            Diagnostic(
                "HOST_CUT",
                f"{self._system}: the connection was cut while {doing}",
                self._system,
                remedy="look at the network and the host, then run again",
            )
        )


def _lost() -> tuple[type[Exception], ...]:
    """Return what a connection that goes away raises."""
    from paramiko import SSHException  # noqa: PLC0415 - slow

    return (SSHException, OSError, EOFError)


def _exec(channel: paramiko.Channel, command: str) -> bool:
    """Start the remote command; False when the connection was cut."""
    try:
        channel.exec_command(command)
    except _lost():
        return False
    return True


def _converse(
    channel: paramiko.Channel,
    script: bytes,
    bell: _Bell,
    on_output: Callable[[bytes, bool], None],
    cancel: Cancel,
) -> bool:
    """Send and read at the same time until the channel ends; False when the run leaves."""
    pending = memoryview(script)
    sending = True
    ended = 0.0
    while True:
        if sending:
            pending = _send_some(channel, pending)
            if not pending:
                sending = False
                with contextlib.suppress(OSError, EOFError):
                    channel.shutdown_write()
        # a window that opens rings no bell: look for it more often
        bell.wait(0.02 if sending else _TICK)
        bell.answer()
        over = channel.closed or (channel.eof_received and channel.status_event.is_set())
        noise = _drain(channel, on_output)
        if over:
            return True
        if cancel.leaving:
            return False
        if channel.eof_received:
            channel.status_event.wait(_TICK)
            bell.set()
        if channel.status_event.is_set() and not noise:
            # the shell is gone, but a child in the background holds its streams
            now = time.monotonic()
            ended = ended or now
            if now - ended >= _LAST_WORDS:
                return True


def _drain(channel: paramiko.Channel, on_output: Callable[[bytes, bool], None]) -> bool:
    noise = False
    while channel.recv_ready():
        on_output(channel.recv(_PIECE), False)
        noise = True
    while channel.recv_stderr_ready():
        on_output(channel.recv_stderr(_PIECE), True)
        noise = True
    return noise


def _send_some(channel: paramiko.Channel, pending: memoryview) -> memoryview:
    """Send what the window takes now; nothing is left when nobody listens any more."""
    try:
        while pending and channel.send_ready():
            pending = pending[channel.send(bytes(pending[:_PIECE])) :]
            if channel.eof_sent or channel.closed:
                return pending[:0]
    except (OSError, EOFError):
        return pending[:0]
    return pending if not channel.closed else pending[:0]


def _send_all(channel: paramiko.Channel, data: memoryview, cancel: Cancel) -> None:
    while data:
        if cancel.leaving:
            raise Interrupted
        sent = channel.send(bytes(data[:_PIECE]))
        if sent == 0:
            raise EOFError
        data = data[sent:]


def _close(channel: paramiko.Channel) -> None:
    with contextlib.suppress(OSError, EOFError, socket.timeout):
        channel.close()
