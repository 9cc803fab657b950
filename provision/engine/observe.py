"""What to ask each system, and in which order: a system behind others is asked when these have answered."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from provision.engine import workers
from provision.engine.questions import Questions
from provision.engine.session import Session
from provision.values.cancel import Cancel
from provision.values.errors import ProvisionError


def close_over(questions: Questions, session: Session) -> Questions:
    """Add what the endpoints of the systems follow from, and what theirs do."""
    todo = list(questions)
    closed: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in closed and name in session.systems:
            closed.add(name)
            needed = session.systems[name].spec.questions
            questions.add(needed)
            todo.extend(needed)
    return questions


def observe(
    session: Session,
    questions: Mapping[str, Iterable[Any]],
    remembered: Mapping[str, frozenset[Any]],
    cancel: Cancel,
) -> None:
    """Ask all systems at once, with what was asked last time; failures are kept in the session.

    Args:
        session: the systems.
        questions: what is needed now, by system; what their endpoints follow from is added.
        remembered: what was asked last time.
        cancel: ends the waiting, by its first word: nothing acts yet.

    Raises:
        Interrupted: the run must leave.
    """
    cancel = cancel.looking()
    questions = close_over(Questions(questions), session)
    names = _dependents_last([name for name in questions if name in session.systems], session)
    answered = {name: threading.Event() for name in names}
    place = {name: index for index, name in enumerate(names)}

    def ask(name: str) -> None:
        ways = session.systems[name].spec.ways
        try:
            for other in dict.fromkeys(other for way in ways for other in way.questions):
                # Only who comes first is waited for: it has a thread by now.
                if place.get(other, len(place)) < place[name]:
                    workers.wait_for(answered[other], cancel)
            errors = [session.error_of(way.questions) for way in ways]
            if all(errors):
                session.systems[name].error = errors[0]  # the others were tried already
            else:
                session.ask(name, {*questions[name], *remembered.get(name, ())}, cancel)
        except ProvisionError as error:
            session.systems[name].error = error
        finally:
            answered[name].set()

    workers.each(names, ask, cancel)


def _dependents_last(names: list[str], session: Session) -> list[str]:
    """Return systems after those that their endpoints follow from; as they are if these go in a circle."""
    known = set(names)
    behind = {
        name: [other for way in session.systems[name].spec.ways for other in way.questions if other in known]
        for name in names
    }
    try:
        return list(TopologicalSorter(behind).static_order())
    except CycleError:
        return names
