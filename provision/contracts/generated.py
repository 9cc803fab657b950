"""Secrets that the engine makes, and that live on managed systems alone."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pydantic import SecretStr

from provision.connections.contracts import KeyPair
from provision.contracts.resource import AnswerId, Resource


def new_token() -> str:
    """Return 256 random bits as text."""
    return secrets.token_hex(32)


@dataclass(frozen=True, slots=True)
class GeneratedValue:
    """A secret that is made once for a site.

    Every role that reads it declares it. No controller keeps it: each run reads it back from its homes.

    Args:
        name: as `provision rotate` takes it (`join-token`).
        homes: where it is in use: secret questions, answered by None where it is not there. The first home
            that has a value decides.
        upcoming: where a new value is kept while a rotation goes on, likewise.
        keep: returns the resource that keeps the new value on a system of `upcoming`, or that removes it.
        make: makes a value.
    """

    name: str
    homes: tuple[AnswerId, ...]
    upcoming: tuple[AnswerId, ...]
    keep: Callable[[str, SecretStr | None], Resource]
    make: Callable[[], str] = new_token


class Generated(Protocol):
    """Values made by the engine, each once a run."""

    def host_key(self, purpose: str) -> KeyPair:
        """Return an ed25519 key pair, the same for the same purpose within one run."""

    def value(self, name: str) -> SecretStr:
        """Return a value that the role declares: the new one while a rotation goes on.

        Raises:
            NotYet: no home has it, and one of them gives no answer.
        """

    def former(self, name: str) -> SecretStr | None:
        """Return the value that a rotation replaces, as long as a home still has it."""
