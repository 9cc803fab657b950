"""paramiko's transport with less work for each connection; importing it imports paramiko.

Measured with `benchmarks/ssh_sessions.py`. The ciphers with authentication (GCM) save comparing a MAC byte by
byte in Python, which was a tenth of a short session.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Any

import paramiko
from paramiko.packet import NeedRekeyException, Packetizer

PIECE = 64 * 1024
"""Bytes taken from the socket at once: several messages often arrive together."""

POLL = 5.0
"""Seconds after which a reader without data looks for the keepalive; `close_all` wakes it at once.

paramiko looks ten times a second, which costs more than the sessions once hundreds are open.
"""

KEX = ("curve25519-sha256@libssh.org", "ecdh-sha2-nistp256")
"""Preferred key exchanges: the cheapest first; the library's others follow."""

CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
"""Preferred ciphers; the library's others follow."""


class BufferedPacketizer(Packetizer):
    """Takes from the socket what has arrived, instead of each message's length and rest on their own.

    The handshake needs no timer, which would be one more thread: `start_client` has a deadline.
    """

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self._source = source
        self._received = bytearray()
        # a ProxyCommand waits until it has as much as it was asked for
        self._piece = 0 if isinstance(source, paramiko.ProxyCommand) else PIECE

    def start_handshake(self, timeout: float) -> None:
        """Start no timer."""

    def readline(self, timeout: float) -> str:
        """Return the next line without its end.

        Raises:
            TimeoutError: it does not come in time.
            EOFError: the connection ended.
        """
        deadline = time.monotonic() + timeout
        while (end := self._received.find(b"\n")) < 0:
            self._receive(1)
            if time.monotonic() > deadline:
                raise TimeoutError
        return self._take(end + 1).rstrip(b"\r\n").decode("utf-8", "replace")

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        """Return the next `n` bytes; see `Packetizer.read_all`."""
        while len(self._received) < n:
            if not self._receive(n - len(self._received)):
                if check_rekey and not self._received and self.need_rekey():
                    raise NeedRekeyException
                self._check_keepalive()  # type: ignore[attr-defined]  # missing in the stubs
        return self._take(n)

    def _receive(self, least: int) -> bool:
        """Wait for data once; False when none came.

        Raises:
            EOFError: the connection ended.
        """
        try:
            piece = self._source.recv(max(least, self._piece))
        except (TimeoutError, BlockingIOError):
            if self.closed:
                raise EOFError from None
            return False
        except OSError:
            if self.closed:
                raise EOFError from None
            raise
        if not piece:
            raise EOFError
        self._received += piece
        return True

    def _take(self, count: int) -> bytes:
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken


class LeanTransport(paramiko.Transport):
    """One connection.

    Args:
        source: a socket, or what stands for one: a channel of a jump host, a ProxyCommand.
    """

    def __init__(self, source: socket.socket | paramiko.Channel | paramiko.ProxyCommand) -> None:
        super().__init__(source, packetizer_class=BufferedPacketizer)
        if not isinstance(source, paramiko.ProxyCommand):
            source.settimeout(POLL)
        options = self.get_security_options()
        options.kex = _first(KEX, options.kex)
        options.ciphers = _first(CIPHERS, options.ciphers)

    def run(self) -> None:
        """Serve the connection until it ends, then drop the references that form cycles.

        The garbage collector runs seldom here, and each ended connection would keep 40 KiB until then.
        """
        super().run()
        self._handler_table.clear()  # type: ignore[attr-defined]  # missing in the stubs
        self.kex_engine = None
        error = self.saved_exception
        if error is not None:
            error.__traceback__ = error.__context__ = None

    def _log(self, level: int, msg: Any, *args: object) -> None:
        """Drop the library's log: it costs formatting, and nobody reads it."""


def _first(preferred: Sequence[str], supported: Sequence[str]) -> tuple[str, ...]:
    """Return the supported names, the preferred ones first."""
    chosen = tuple(name for name in preferred if name in supported)
    return (*chosen, *(name for name in supported if name not in chosen))
