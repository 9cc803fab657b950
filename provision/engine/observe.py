"""What to ask each system, and in which order: systems behind others come in a later wave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from provision.engine import workers
from provision.engine.session import Session
from provision.values.cancel import Cancel
from provision.values.errors import ProvisionError


class Questions:
    """Questions by system."""

    def __init__(self) -> None:
        self.by_system: dict[str, set[Any]] = {}

    def add(self, asked: Mapping[str, Iterable[Any]]) -> None:
        """Add some; a system without a question is still opened."""
        for system, queries in asked.items():
            self.by_system.setdefault(system, set()).update(queries)

    def close_over(self, session: Session) -> None:
        """Add what the endpoints of the systems follow from, and what theirs do."""
        todo = list(self.by_system)
        done: set[str] = set()
        while todo:
            name = todo.pop()
            if name in done or name not in session.systems:
                continue
            done.add(name)
            needed = session.systems[name].spec.questions
            self.add(needed)
            todo.extend(needed)


def observe(
    session: Session,
    questions: Mapping[str, Iterable[Any]],
    remembered: Mapping[str, frozenset[Any]],
    cancel: Cancel,
) -> None:
    """Ask all systems at once, with what was asked last time; failures are kept in the session.

    Args:
        session: the systems.
        questions: what is needed now, by system, closed over their endpoints' needs.
        remembered: what was asked last time.
        cancel: ends the waiting.

    Raises:
        Interrupted: the run must leave.
    """
    left = [name for name in questions if name in session.systems]

    def ask(name: str) -> None:
        for other in session.systems[name].spec.questions:
            behind = session.systems.get(other)
            if behind is not None and behind.snapshot is None and behind.error is not None:
                session.systems[name].error = behind.error  # it was tried already, in an earlier wave
                return
        wanted = {*questions[name], *remembered.get(name, ())}
        try:
            session.ask(name, wanted, cancel)
        except ProvisionError as error:
            session.systems[name].error = error

    while left:
        open_names = set(left)
        wave = [
            name
            for name in left
            if not any(each in open_names for each in session.systems[name].spec.questions)
        ]
        if not wave:  # specs that wait for each other: their own endpoint says so
            wave = left
        workers.each(wave, ask, cancel)
        left = [name for name in left if name not in set(wave)]
