"""What all views over a system's answers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from provision.contracts.query import Unknown
from provision.contracts.snapshot import Snapshot

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class View:
    """A system's answers by what they mean; each fact names the question that must have been asked for it.

    Args:
        seen: the answers, or why there are none.
    """

    seen: Snapshot | Unknown

    def answer(self, query: Any) -> Any:
        """Return what the system said to a question, or why it said nothing."""
        if isinstance(self.seen, Unknown):
            return self.seen
        return self.seen.answers.get(query, Unknown(f"{self.seen.system} was not asked"))

    def told(self, query: Any, shape: type[T]) -> T | Unknown:
        """Return an answer of a shape, or why there is none."""
        answer = self.answer(query)
        return answer if isinstance(answer, (shape, Unknown)) else Unknown("no answer")
