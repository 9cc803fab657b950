"""What the SSH connections of one process share: their number, logins to one server, and key exchanges."""

from __future__ import annotations

import contextlib
import errno
import math
import resource
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from provision.connections.ssh_target import Target
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, Transient

if TYPE_CHECKING:
    import paramiko

CONNECTIONS = 64
"""Open connections beyond which idle ones are closed: each has a thread and a descriptor here, and a process
on its host."""

LOGINS = 8
"""Logins to one server at a time: beyond 10, sshd drops some at random (`MaxStartups` in sshd_config(5))."""

HANDSHAKES = 32
"""Key exchanges and logins at a time, whatever their servers: they cost CPU time."""

RESERVED = 32
"""Descriptors for everything else: journal, standard streams, files that are read, HTTPS connections."""


class PooledConnection(Protocol):
    """A connection as the pool sees it."""

    @property
    def is_open(self) -> bool:
        """Whether it holds a descriptor."""

    def detach(self) -> Sequence[paramiko.Transport]:
        """Return its transports, which the caller closes; the next use opens others."""


class SshPool:
    """Limits that all SSH connections of one process keep together.

    A connection in use is never closed, and never waits for a place: one that holds a lock or runs an action
    may take long. So more than `size` are open while more are in use; of the idle ones, those used least
    recently are closed.

    Args:
        size: connections that may be open and idle, together with those in use.
        logins: logins to one server at a time.
        handshakes: key exchanges and logins at a time.
    """

    def __init__(
        self, size: int = CONNECTIONS, *, logins: int = LOGINS, handshakes: int = HANDSHAKES
    ) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._users: dict[PooledConnection, int] = {}
        """Uses by connection, the least recently used connection first."""
        self._logins = logins
        self._login_limits: dict[tuple[str, int, str], _LoginLimit] = {}
        self.handshakes = threading.BoundedSemaphore(handshakes)

    @contextlib.contextmanager
    def use(self, connection: PooledConnection, system: str) -> Iterator[None]:
        """Keep a connection from being closed as idle; idle ones make room for it.

        Raises:
            Permanent: `TOO_FEW_DESCRIPTORS`.
        """
        self._enter(connection, system)
        try:
            yield
        finally:
            self._leave(connection)

    def forget(self, connection: PooledConnection) -> None:
        """Free the place of a connection that was closed."""
        with self._lock:
            if not self._users.get(connection):
                self._users.pop(connection, None)

    def _enter(self, connection: PooledConnection, system: str) -> None:
        allowed = _descriptors_for_connections()
        with self._lock:
            users = self._users.pop(connection, 0)
            self._users[connection] = users + 1
            idle = self._take_idle(min(self._size, allowed))
            refused = len(self._users) > allowed
            if refused:
                self._drop_use(connection)
        close_all(idle)
        if refused:
            raise too_few_descriptors(system)

    def _leave(self, connection: PooledConnection) -> None:
        with self._lock:
            self._drop_use(connection)
            idle = self._take_idle(self._size)
        close_all(idle)

    def _drop_use(self, connection: PooledConnection) -> None:
        users = self._users.pop(connection) - 1
        if users or connection.is_open:
            self._users[connection] = users

    def _take_idle(self, size: float) -> list[paramiko.Transport]:
        """Return the transports of the idle connections above a number, to be closed without the lock."""
        if len(self._users) <= size:
            return []
        idle = [connection for connection, users in self._users.items() if not users]
        transports: list[paramiko.Transport] = []
        for connection in idle:
            if len(self._users) <= size:
                break
            del self._users[connection]
            transports += connection.detach()
        return transports

    @contextlib.contextmanager
    def login(self, target: Target) -> Iterator[None]:
        """Log in to a server, a few at a time; servers behind one jump host count separately.

        Raises:
            Transient: the server proved unreachable to another login while this one waited.
        """
        behind = target.jump.host if target.jump is not None else ""
        with self._lock:
            limit = self._login_limits.setdefault(
                (target.host, target.port, behind), _LoginLimit(self._logins)
            )
        arrived = time.monotonic()
        with limit.places:
            if limit.failure is not None and limit.failure[0] >= arrived:
                raise limit.failure[1]
            try:
                yield
            except Transient as error:
                limit.failure = (time.monotonic(), error)
                raise


class _LoginLimit:
    """Limits the logins to one server."""

    def __init__(self, places: int) -> None:
        self.places = threading.BoundedSemaphore(places)
        self.failure: tuple[float, Transient] | None = None
        """When a login failed the last time, and with which error."""


def _descriptors_for_connections() -> float:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return math.inf if limit == resource.RLIM_INFINITY else limit - RESERVED


def close_all(transports: Sequence[paramiko.Transport]) -> None:
    """Close transports, the last one first: it may run through the ones before it."""
    for transport in reversed(transports):
        with contextlib.suppress(OSError, EOFError, AttributeError):
            # closing the descriptor alone does not wake the thread that waits in recv(2)
            transport.sock.shutdown(2)
        with contextlib.suppress(OSError, EOFError):
            transport.close()


def is_out_of_descriptors(error: BaseException) -> bool:
    """Whether an error says that this process or this machine may open no more files."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def too_few_descriptors(system: str) -> Permanent:
    """Return the error for a limit of open files that is too low."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    needed = CONNECTIONS + 2 * RESERVED
    return Permanent(
        Diagnostic(
            "TOO_FEW_DESCRIPTORS",
            f"{system}: cannot open an SSH connection: this process may open only {limit} files at a time",
            system,
            untouched="nothing was sent to the host",
            remedy=f"raise the limit (`ulimit -n {max(needed, 2 * limit)}`) and run the command again",
        )
    )
