"""What is known of one resource: who declares it, what was answered, what differs, what mending costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from provision.contracts.change import Key
from provision.contracts.query import Unknown, is_secret
from provision.contracts.resource import Resource
from provision.contracts.snapshot import Snapshot
from provision.engine.model import PlannedChange, StepId, StepPlan
from provision.values.diagnostics import Source


class Expanded(Protocol):
    """A step with its desired states, as planning leaves it."""

    @property
    def resources(self) -> tuple[Resource, ...]:
        """Desired states."""
        ...

    @property
    def plan(self) -> StepPlan:
        """What it would do."""
        ...


@dataclass(frozen=True, slots=True)
class Explained:
    """One resource.

    Args:
        key: its identity.
        step: whose it is.
        source: inventory line, if there is one.
        answers: question and answer, as text; those about secrets only named.
        unknown: why something cannot be told, or empty.
        planned: what differs, or None when it is as declared.
    """

    key: Key
    step: StepId
    source: Source | None
    answers: tuple[tuple[str, str], ...]
    unknown: str
    planned: PlannedChange | None


def explained(
    works: Mapping[StepId, Expanded], snapshots: Mapping[str, Snapshot], text: str
) -> Iterator[Explained]:
    """Yield what is known of the resources whose key is a text, else of those whose key contains it.

    Args:
        works: the steps of a plan.
        snapshots: the answers that it rests on, by system.
        text: a key (`vm-1/ssh:file:/etc/motd`) or a part of one.
    """
    every = [(step, work, each) for step, work in works.items() for each in work.resources]
    exact = [found for found in every if str(found[2].key) == text]
    for step, work, resource in exact or [found for found in every if text in str(found[2].key)]:
        seen = snapshots.get(resource.key.system, Snapshot(resource.key.system))
        answers = [(query, seen.answers[query]) for query in resource.queries() if query in seen]
        reasons = [answer.reason for _, answer in answers if isinstance(answer, Unknown)]
        yield Explained(
            resource.key,
            step,
            resource.source,
            tuple(_words(query, answer) for query, answer in answers),
            "; ".join(reasons),
            next((each for each in work.plan.changes if each.key == resource.key), None),
        )


def _words(query: Any, answer: Any) -> tuple[str, str]:
    return ("content of a secret", "(secret)") if is_secret(query) else (repr(query), repr(answer))
