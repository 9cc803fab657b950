"""Queries to a system and what their answers can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Unknown:
    """A query that got no usable answer, and why; never mistaken for absence."""

    reason: str


@runtime_checkable
class Query(Protocol):
    """A hashable query to one system: a frozen dataclass with plain fields (str, int, bool, tuples).

    A class with `secret: ClassVar[bool] = True` asks for a secret. Its answer is a SecretStr (or None, or
    Unknown) from the moment it is read, stays in memory, and is masked everywhere from then on.
    """

    kind: ClassVar[str]


def is_secret(query: object) -> bool:
    """Whether nobody may see the answer to a query: it is a secret, or what one can be guessed by."""
    return bool(getattr(query, "secret", False))


@dataclass(frozen=True, slots=True)
class ApiGet:
    """A GET of one path of an API, with its query string; answer: ApiReply, whatever the API says."""

    kind: ClassVar[str] = "api-get"
    path: str


@dataclass(frozen=True, slots=True)
class ApiReply:
    """What an API answered to a GET, read by no parser of ours.

    Args:
        status: HTTP status.
        text: the answer's data as JSON text, or the message of an error.
    """

    status: int
    text: str


@dataclass(frozen=True, slots=True)
class Frame:
    """What one fragment of a script said: first and last 64 KiB of each stream, the rest only counted.

    `rc` is None when the frame never ended (connection cut): its outcome is unknown.
    """

    stdout: bytes
    stderr: bytes
    rc: int | None
    dropped: int = 0


class QueryKind(Protocol):
    """How all queries of one kind are asked of a host by one shell fragment, and how its answer is read.

    `parse` is total: garbage becomes Unknown, for each query on its own.
    """

    @property
    def query(self) -> type[Any]:
        """The class of the queries."""

    def script(self, queries: Sequence[Any]) -> str:
        """Return one POSIX fragment that answers all queries; it writes nothing."""

    def parse(self, frame: Frame, queries: Sequence[Any]) -> Mapping[Any, object]:
        """Return an answer or Unknown for every query."""
