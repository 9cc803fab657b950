"""The answers of one system at one time."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from provision.contracts.effect import Effect
from provision.contracts.query import Unknown

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pending:
    """An effect that is still to happen on a host: its run was killed, or lacked consent.

    Args:
        effect: what must happen.
        boot_id: boot id at the time of the fix; reboots and restarts are satisfied by any other.
        run: the run that made the change.
    """

    effect: Effect
    boot_id: str
    run: str


class UnaskedError(KeyError):
    """A role or resource read an answer to a query that it does not declare: a programming error."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The answers of one system at one time.

    Args:
        system: `node-1/ssh`, `cluster/api`, `router`.
        boot_id: which boot of the host answered; empty for APIs.
        answers: answer or Unknown by query.
        pending: effects that are still to happen on the host.
        clock: the host's clock in epoch seconds, 0.0 if it has none.
        skew: the host's clock minus the controller's, in seconds.
        unknown: the queries whose answer is Unknown; derived from `answers`.
    """

    system: str
    boot_id: str = ""
    answers: Mapping[Any, object] = field(default_factory=dict)
    pending: tuple[Pending, ...] = ()
    clock: float = 0.0
    skew: float = 0.0
    unknown: frozenset[Any] = field(init=False, repr=False, compare=False)
    _derived: dict[Any, tuple[tuple[object, ...], Any]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        unknown = frozenset(query for query, answer in self.answers.items() if isinstance(answer, Unknown))
        object.__setattr__(self, "unknown", unknown)

    def __contains__(self, query: object) -> bool:
        return query in self.answers

    def __getitem__(self, query: Any) -> Any:
        """Return the answer (may be Unknown). Raises UnaskedError."""
        try:
            return self.answers[query]
        except KeyError:
            raise UnaskedError(f"{self.system} was not asked {query!r}") from None

    def missing(self, queries: Iterable[Any]) -> frozenset[Any]:
        """Return those of the queries that this snapshot does not answer."""
        return frozenset(query for query in queries if query not in self.answers)

    def updated(self, newer: Snapshot) -> Snapshot:
        """Return this snapshot with the answers of a newer one; a new boot id voids the older answers."""
        if newer.boot_id != self.boot_id:
            return newer
        merged = replace(newer, answers={**self.answers, **newer.answers})
        object.__setattr__(merged, "_derived", self._derived)
        return merged

    def derived(self, key: Hashable, queries: Iterable[Any], make: Callable[[], T]) -> T:
        """Return what a pure function makes of the answers to some queries; it is called once for them.

        Many resources may read one large answer (the reservations of a router), and each would parse it.

        Args:
            key: names the function with its arguments.
            queries: whose answers it reads.
            make: the function.
        """
        basis = tuple(self.answers.get(query) for query in queries)
        held = self._derived.get(key)
        if held is not None and all(map(operator.is_, held[0], basis)):
            value: T = held[1]
            return value
        value = make()
        self._derived[key] = (basis, value)
        return value
