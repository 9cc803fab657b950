"""Generated values of one run; their home is on managed systems, here they only live as long as the run."""

from __future__ import annotations

import threading
from collections.abc import Callable

from provision.connections.contracts import KeyPair


class GeneratedValues:
    """Makes each value once.

    Args:
        make: makes a key pair from its comment.
        made: told of each private key, so that it is masked everywhere.
    """

    def __init__(
        self, make: Callable[[str], KeyPair], made: Callable[[KeyPair], None] = lambda _: None
    ) -> None:
        self._make = make
        self._made = made
        self._keys: dict[str, KeyPair] = {}
        self._lock = threading.Lock()

    def host_key(self, purpose: str) -> KeyPair:
        """Return an ed25519 key pair, the same for the same purpose within one run."""
        with self._lock:
            if purpose not in self._keys:
                self._keys[purpose] = self._make(purpose)
                self._made(self._keys[purpose])
            return self._keys[purpose]
