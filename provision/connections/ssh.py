"""SSH to a host: one connection, opened when it is first needed, with strictly checked host keys."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from provision.connections import upload
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
"""The only remote command. The script comes on stdin, so no argument list shows any part of it."""

_CHUNK = 256 * 1024
_KEPT = 4096
_POLL_SECONDS = 0.5
_BATCH_SECONDS = 0.02
_TERMINATION_SECONDS = 10
_DRAIN_SECONDS = 1.0
_RETRY_SECONDS = 1.0


class _DataEvent(threading.Event):
    """Set when either stream of a channel has data.

    paramiko clears the event of a stream that it has emptied. With two streams on one event, that would drop
    the other one's data, so only `reset` clears it.
    """

    def clear(self) -> None:
        """Do nothing."""

    def reset(self) -> None:
        """Clear the event until more data arrives."""
        super().clear()


@dataclass(eq=False)
class _Line:
    """One connection to the server.

    Args:
        chain: its transports, those of jump hosts first.
        sessions: how many sessions run on it.
        limit: how many the server allows, once it refused one.
        is_new: no session was opened on it before.
    """

    chain: list[paramiko.Transport]
    sessions: int = 0
    limit: int | None = None
    is_new: bool = True

    @property
    def has_room(self) -> bool:
        """Whether the server may allow another session."""
        return self.limit is None or self.sessions < self.limit


class SshConnection:
    """Implements `ShellConnection`; opens a further connection where a server allows too few sessions.

    Args:
        endpoint: the host and the login.
        system: name for messages (`vm-1/ssh`); the address if empty.
        pool: shared with other connections; one of its own if None.
    """

    def __init__(self, endpoint: SshEndpoint, system: str = "", pool: SshPool | None = None) -> None:
        self._endpoint = endpoint
        self._pool = pool or SshPool()
        self._system = system or endpoint.address
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._lines: list[_Line] = []
        self._target: Target | None = None
        self._deadline: float | None = None
        self.uses_sudo = endpoint.user != "root" and endpoint.sudo
        self.executions = 0

    # ------------------------------------------------------------ scripts

    def execute(
        self, script: bytes, *, on_output: Callable[[bytes, bool], None], cancel: Cancel
    ) -> int | None:
        """Send a script and pass on its output; see `ShellConnection.execute`."""
        with self._pool.use(self, self._system):
            return self._execute(script, on_output, cancel)

    def _execute(self, script: bytes, on_output: Callable[[bytes, bool], None], cancel: Cancel) -> int | None:
        line, channel = self._channel(cancel)
        self.executions += 1
        data_event = _DataEvent()
        channel.in_buffer.set_event(data_event)
        channel.in_stderr_buffer.set_event(data_event)
        leaving = False
        try:
            if not _exec(channel, self._command(SHELL)):
                return None
            leaving = not _exchange(channel, script, data_event, on_output, cancel)
            if leaving or not channel.status_event.is_set() or channel.exit_status < 0:
                return None
            return channel.exit_status
        finally:
            if not leaving:
                _close(channel)
            self._release(line)

    def _command(self, command: str) -> str:
        if not self.uses_sudo:
            return command
        return command.replace("exec ", "exec sudo -n ", 1)

    def upload(self, path: str, data: bytes | memoryview, cancel: Cancel, *, lock: str = "") -> None:
        """Write a file (0600) completely or not at all, and resume what an earlier attempt has sent.

        Raises:
            Transient: the connection broke; the next attempt resumes.
            Permanent: the host cannot write it.
            UploadLockedError: somebody else holds the lock.
        """
        with self._pool.use(self, self._system):
            self._upload(path, data, cancel, lock)

    def _upload(self, path: str, data: bytes | memoryview, cancel: Cancel, lock: str) -> None:
        line, channel = self._channel(cancel)
        end = time.monotonic() + upload.deadline(len(data))
        try:
            channel.settimeout(_POLL_SECONDS)
            if not _exec(channel, self._command(upload.COMMAND)):
                raise self._connection_broke(f"sending {path}")
            _send_all(channel, memoryview(upload.opening(path, len(data), lock)), cancel, end)
            answer = _received(channel.recv, upload.LINE, cancel, end, until=b"\n")
            if answer.strip().isdigit():
                _send_all(channel, memoryview(data)[int(answer) :], cancel, end)
            channel.shutdown_write()
            if answer.startswith(b"locked\n"):
                raise upload.UploadLockedError(
                    answer.partition(b"\n")[2] + _received(channel.recv, _KEPT, cancel, end)
                )
            errors = _received(channel.recv_stderr, _KEPT, cancel, end)
            channel.status_event.wait(_TERMINATION_SECONDS)
        except _connection_errors() as error:
            raise self._connection_broke(f"sending {path}") from error
        finally:
            _close(channel)
            self._release(line)
        if channel.exit_status == 0:
            return
        if channel.exit_status < 0:
            raise self._connection_broke(f"sending {path}")
        raise Permanent(
            Diagnostic(
                "UPLOAD_FAILED",
                f"{self._system}: cannot write {path}",
                self._system,
                evidence=tuple(errors.decode("utf-8", "replace").splitlines()[-5:]),
                remedy="check the free space on the host",
            )
        )

    def kill_group(self, pgid: int) -> None:
        """TERM to a process group over a second channel, after 10 s KILL."""
        script = (
            f"g={int(pgid)}; kill -TERM -$g || exit 0; i=0\n"
            f"while [ $i -lt {_TERMINATION_SECONDS * 10} ] && kill -0 -$g; do "
            "i=$((i+1)); sleep 0.1 || sleep 1; done\n"
            "kill -KILL -$g\n"
        )
        with self._pool.use(self, self._system):
            line, channel = self._channel(Cancel())
            try:
                if _exec(channel, self._command(SHELL)):
                    channel.sendall(f"{{ {script}}} 2>/dev/null\nexit 0\n".encode())
                    channel.shutdown_write()
                    channel.status_event.wait(_TERMINATION_SECONDS + 5.0)
            except OSError as error:
                raise self._connection_broke("terminating a process group") from error
            finally:
                _close(channel)
                self._release(line)

    # ------------------------------------------------------------ the connection

    def close(self) -> None:
        """Close the connection; the next execution opens another one."""
        with self._lock:
            chain = self.detach()
        self._pool.forget(self)
        close_all(chain)

    @property
    def is_open(self) -> bool:
        """Whether it holds a descriptor; see `PooledConnection`."""
        return bool(self._lines)

    def detach(self) -> list[paramiko.Transport]:
        """Return the transports, which the caller closes; see `PooledConnection`."""
        lines, self._lines = self._lines, []
        return [transport for line in lines for transport in line.chain]

    def _channel(self, cancel: Cancel) -> tuple[_Line, paramiko.Channel]:
        """Open a session where the server has room for one, on a further connection if need be."""
        import paramiko  # noqa: PLC0415 - slow

        has_broken = False
        while True:
            line = self._line(cancel)
            try:
                return line, line.chain[-1].open_session(timeout=60.0)
            except paramiko.ChannelException as error:
                # `MaxSessions` (sshd_config(5)): what runs on this connection goes on
                self._limit(line)
                if line.is_new:
                    raise self._no_session(error) from error
            except _connection_errors() as error:
                self._drop(line)
                if has_broken:
                    raise self._connection_broke("opening a channel") from error
                # it broke while it was idle: nothing was sent, so a second try is safe
                has_broken = True

    def _line(self, cancel: Cancel) -> _Line:
        """Return a connection with room for another session, and count the session."""
        line = self._line_with_room()
        if line is not None:
            return line
        with self._opening:
            line = self._line_with_room()
            if line is None:
                line = _Line(self._open_with_retries(cancel), sessions=1)
                with self._lock:
                    self._lines.append(line)
            return line

    def _line_with_room(self) -> _Line | None:
        with self._lock:
            for broken in [line for line in self._lines if not line.chain[-1].is_active()]:
                self._lines.remove(broken)
                close_all(broken.chain)
            line = next((line for line in self._lines if line.has_room), None)
            if line is not None:
                line.sessions += 1
                line.is_new = False
            return line

    def _release(self, line: _Line) -> None:
        with self._lock:
            line.sessions -= 1

    def _limit(self, line: _Line) -> None:
        """Note that a connection takes no more sessions than it has now; one that has none is closed."""
        with self._lock:
            line.sessions -= 1
            line.limit = line.sessions
            if line.sessions == 0 and line in self._lines:
                # the server may still count a session that has just ended: a new connection decides
                self._lines.remove(line)
                close_all(line.chain)

    def _drop(self, line: _Line) -> None:
        with self._lock:
            line.sessions -= 1
            if line in self._lines:
                self._lines.remove(line)
            close_all(line.chain)

    def _no_session(self, error: Exception) -> ProvisionError:
        return Permanent(
            Diagnostic(
                "SSH_NO_SESSION",
                f"{self._system}: the SSH server accepts the login and refuses to run commands",
                self._system,
                evidence=(str(error),),
                remedy="set `MaxSessions` to 1 or more in /etc/ssh/sshd_config on the host",
            )
        )

    def _open_with_retries(self, cancel: Cancel) -> list[paramiko.Transport]:
        if self._target is None:
            self._target = resolve(self._endpoint)
        if self._deadline is None:  # set once: a second call does not wait for the same boot again
            self._deadline = time.monotonic() + self._endpoint.wait
        while True:
            if cancel.leaving:
                raise Interrupted
            try:
                return open_transport(self._target, self._endpoint.fingerprints, self._system, self._pool)
            except Transient:
                if time.monotonic() + _RETRY_SECONDS >= self._deadline:
                    raise
            cancel.wait(_RETRY_SECONDS)

    def _connection_broke(self, action: str) -> ProvisionError:
        return Transient(
            Diagnostic(
                "HOST_CUT",
                f"{self._system}: the connection broke while {action}",
                self._system,
                remedy="check the network and the host, then run the command again",
            )
        )


def _connection_errors() -> tuple[type[Exception], ...]:
    """Return what a broken connection raises."""
    from paramiko import SSHException  # noqa: PLC0415 - slow

    return (SSHException, OSError, EOFError)


def _exec(channel: paramiko.Channel, command: str) -> bool:
    """Start the remote command; False if the connection broke."""
    try:
        # messages of the login shell and of sudo in English, where sshd accepts it (Debian: `AcceptEnv LC_*`)
        channel.set_environment_variable("LC_ALL", "C")
        channel.exec_command(command)
    except _connection_errors():
        return False
    return True


def _exchange(
    channel: paramiko.Channel,
    script: bytes,
    data_event: _DataEvent,
    on_output: Callable[[bytes, bool], None],
    cancel: Cancel,
) -> bool:
    """Send and read in turns until the channel ends; False when the run leaves."""
    pending = memoryview(script)
    is_sending = True
    exited_at = 0.0
    while True:
        if is_sending:
            pending = _send_some(channel, pending)
            if not pending:
                is_sending = False
                with contextlib.suppress(OSError, EOFError):
                    channel.shutdown_write()
        # a window that opens sets no event: look for it more often
        data_event.wait(0.02 if is_sending else _POLL_SECONDS)
        data_event.reset()
        has_ended = channel.closed or (channel.eof_received and channel.status_event.is_set())
        count = _read_available(channel, on_output)
        if has_ended:
            return True
        if cancel.leaving:
            return False
        if channel.eof_received:
            channel.status_event.wait(_POLL_SECONDS)
            data_event.set()
        elif 0 < count < _CHUNK:
            # scripts write their marks one by one: take several at once, and wake up less often
            channel.status_event.wait(_BATCH_SECONDS)
        if channel.status_event.is_set() and not count:
            # the shell has exited, but a child in the background keeps its streams open
            now = time.monotonic()
            exited_at = exited_at or now
            if now - exited_at >= _DRAIN_SECONDS:
                return True


def _read_available(channel: paramiko.Channel, on_output: Callable[[bytes, bool], None]) -> int:
    """Pass on what has arrived, and return the number of bytes."""
    count = 0
    while channel.recv_ready():
        data = channel.recv(_CHUNK)
        on_output(data, False)
        count += len(data)
    while channel.recv_stderr_ready():
        data = channel.recv_stderr(_CHUNK)
        on_output(data, True)
        count += len(data)
    return count


def _send_some(channel: paramiko.Channel, pending: memoryview) -> memoryview:
    """Send what the window takes now, and return the rest; it is empty once the channel is closed."""
    try:
        while pending and channel.send_ready():
            pending = pending[channel.send(bytes(pending[:_CHUNK])) :]
            if channel.eof_sent or channel.closed:
                return pending[:0]
    except (OSError, EOFError):
        return pending[:0]
    return pending if not channel.closed else pending[:0]


def _send_all(channel: paramiko.Channel, data: memoryview, cancel: Cancel, end: float) -> None:
    while data:
        _check_time(cancel, end)
        with contextlib.suppress(TimeoutError):
            sent = channel.send(bytes(data[:_CHUNK]))
            if sent == 0:
                raise EOFError
            data = data[sent:]


def _received(
    receive: Callable[[int], bytes], limit: int, cancel: Cancel, end: float, *, until: bytes = b""
) -> bytes:
    """Return the first `limit` bytes of what arrives until the stream ends, or a line does."""
    data = b""
    while True:
        _check_time(cancel, end)
        with contextlib.suppress(TimeoutError):
            chunk = receive(4096)
            data += chunk[: limit - len(data)]
            if not chunk or (until and (until in data or len(data) >= limit)):
                return data


def _check_time(cancel: Cancel, end: float) -> None:
    if cancel.leaving:
        raise Interrupted
    if time.monotonic() > end:
        raise TimeoutError("the host took too long")


def _close(channel: paramiko.Channel) -> None:
    with contextlib.suppress(OSError, EOFError, socket.timeout):
        channel.close()
