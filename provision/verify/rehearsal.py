"""Find out what the checks will ask: a first verification costs a few round trips a host, not one a command.

A rehearsal runs the checks on the answers at hand and notes what is missing; all of that is asked at once,
and the next rehearsal goes further. In the end the real checks meet prepared answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from provision.contracts.query import ApiReply
from provision.contracts.snapshot import Snapshot
from provision.hosts.queries.shell import Shell
from provision.verify.backend import Answers

PASSES = 6
"""Checks whose later questions follow from earlier answers go no deeper than this."""


class Rehearsal:
    """Answers from what is at hand; what is not skips the check and is noted."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.missing: dict[str, set[Any]] = {}

    def ask(self, system: str, queries: Iterable[Any], *, fresh: bool = False) -> Snapshot:
        """Return the answers at hand; a missing or a fresh one ends the check here."""
        held = self._answers.held(system)
        missing = held.missing(queries)
        if missing:
            self.missing.setdefault(system, set()).update(missing)
        if missing or fresh:
            pytest.skip("not asked yet")
        return held

    def held(self, system: str) -> Snapshot:
        """Return the answers at hand."""
        return self._answers.held(system)

    def gather(self, queries: object) -> None:
        """Ask nothing."""

    def away(self, system: str) -> str:
        """Return why a system cannot be asked."""
        return self._answers.away(system)


class NoRequests:
    """Sends nothing: checks that make something end there in a rehearsal."""

    def away(self, system: str) -> str:  # noqa: ARG002 - the protocol's form
        """Return nothing: it is not asked."""
        return ""

    def send(self, system: str, method: str, path: str, body: object = None) -> ApiReply:  # noqa: ARG002 - the same
        """Send nothing."""
        pytest.skip("not asked yet")

    def pause(self, seconds: float, *, final: bool = False) -> None:
        """Wait for nothing."""


def rehearse(answers: Answers, systems: Iterable[str], run: Callable[[Answers], object]) -> None:
    """Gather what the checks will ask, unless a former verification's questions were asked with the plan's.

    Args:
        answers: the session.
        systems: hosts that checks are about.
        run: runs all checks on the answers it is given.
    """
    there = [name for name in systems if not answers.away(name)]
    if all(any(isinstance(each, Shell) for each in answers.held(name).answers) for name in there):
        return
    known: dict[str, set[Any]] = {}
    for _ in range(PASSES):
        rehearsal = Rehearsal(answers)
        run(rehearsal)
        missing = {name: queries - known.get(name, set()) for name, queries in rehearsal.missing.items()}
        missing = {name: queries for name, queries in missing.items() if queries}
        if not missing:
            return
        for name, queries in missing.items():
            known.setdefault(name, set()).update(queries)
        answers.gather(missing)
