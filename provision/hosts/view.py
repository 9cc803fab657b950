"""What all views over a system's answers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from provision.contracts.query import Unknown
from provision.contracts.snapshot import Snapshot

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class View:
    """A system's answers by what they mean; each fact names the query that must have been asked for it.

    Args:
        snapshot: the answers, or why there are none.
    """

    snapshot: Snapshot | Unknown

    def answer(self, query: Any) -> Any:
        """Return the answer to a query, or why there is none."""
        if isinstance(self.snapshot, Unknown):
            return self.snapshot
        return self.snapshot.answers.get(query, Unknown(f"{self.snapshot.system} was not asked"))

    def known(self, query: Any, shape: type[T], default: T) -> T:
        """Return an answer of a type, or the default where it is not known."""
        answer = self.answer(query)
        return answer if isinstance(answer, shape) else default

    def answer_as(self, query: Any, shape: type[T]) -> T | Unknown:
        """Return an answer of a type, or why there is none."""
        answer = self.answer(query)
        return answer if isinstance(answer, (shape, Unknown)) else Unknown("no answer")
