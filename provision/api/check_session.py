"""The session as verification sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from provision.contracts.driver import Driver, Sender
from provision.contracts.query import ApiGet, ApiReply
from provision.contracts.snapshot import Snapshot
from provision.engine import workers
from provision.engine.session import Session
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, ProvisionError


class Answers:
    """The session as verification sees it; what it asks is asked in advance the next time.

    Args:
        session: of the run.
        cancel: ends it early.
        record: called with system and request before a check sends one that changes something.
        run: id of the run.
    """

    def __init__(
        self,
        session: Session,
        cancel: Cancel,
        record: Callable[[str, str], None] = lambda _system, _what: None,
        run: str = "",
    ) -> None:
        self.run = run
        self._session = session
        self._cancel = cancel
        self._record = record
        self.asked: dict[str, set[Any]] = {}

    def ask(self, system: str, queries: Iterable[Any], *, fresh: bool = False) -> Snapshot:
        """Return answers: those at hand (none if `fresh`), the missing ones by one round trip.

        Raises:
            ProvisionError: the system gives no answers.
        """
        asked = frozenset(queries)
        self.asked.setdefault(system, set()).update(asked)
        return self._session.ask(system, asked, self._cancel, fresh=fresh)

    def held(self, system: str) -> Snapshot:
        """Return the answers at hand, without a round trip; an empty snapshot when there are none."""
        return self._session.snapshot(system) or Snapshot(system)

    def gather(self, queries: Mapping[str, Iterable[Any]]) -> None:
        """Ask several systems at once, one round trip each; one that gives no answers is left out."""

        def one(system: str) -> None:
            with suppress(ProvisionError):
                self.ask(system, queries[system])

        workers.each(queries, one, self._cancel)

    def forget_replies(self) -> None:
        """Forget what APIs said to checks: they speak of machines, which a run changes elsewhere."""
        for name in self._session.systems:
            replies = [query for query in self.held(name).answers if isinstance(query, ApiGet)]
            self._session.forget(name, replies, self._cancel)

    def away(self, system: str) -> str:
        """Return why a system cannot be asked, or an empty string."""
        state = self._session.systems.get(system)
        if state is None:
            return f"there is no system {system}"
        if state.snapshot is not None or state.error is None:
            return ""
        return state.error.diagnostics[0].summary

    def send(self, system: str, method: str, path: str, body: Mapping[str, object] | None = None) -> ApiReply:
        """Send one request of a check, also while the run leaves; nobody's lock is taken.

        Raises:
            ProvisionError: no answer, or the system takes no requests of checks.
        """
        if method != "GET":
            self._record(system, f"{method} {path.partition('?')[0]}")
        # What a check has made must go away, whoever interrupts; each request has a deadline of its own.
        steadfast = Cancel()
        state = self._session.systems[system]

        def request(driver: Driver) -> ApiReply:
            if not isinstance(driver, Sender):
                summary = f"{system} takes no requests of checks"
                raise Permanent(Diagnostic("CHECK_REQUEST_REFUSED", summary, system))
            return driver.send(method, path, body)

        with state.lock.held(steadfast):
            return self._session.call(system, request, steadfast)

    def pause(self, seconds: float, *, final: bool = False) -> None:
        """Wait; see Trials.

        Raises:
            Interrupted: the run must leave.
        """
        (Cancel() if final else self._cancel).wait(seconds)


class FreshAnswers(Answers):
    """Answers for a verification in the middle of a run: none is older than the verification.

    Args:
        session: of the run.
        cancel: ends it.
        remembered: what checks asked before, by system: all of it is asked at once.
    """

    def __init__(
        self,
        session: Session,
        cancel: Cancel,
        remembered: Mapping[str, Iterable[Any]],
    ) -> None:
        super().__init__(session, cancel)
        self._fresh: dict[str, set[Any]] = {}
        self.gather({name: queries for name, queries in remembered.items() if name in session.systems})

    def ask(self, system: str, queries: Iterable[Any], *, fresh: bool = False) -> Snapshot:
        """Return answers that were asked by this verification."""
        asked = frozenset(queries)
        known = self._fresh.setdefault(system, set())
        missing = asked if fresh else asked - known
        snapshot = self._session.ask(system, missing or asked, self._cancel, fresh=bool(missing))
        known.update(missing)
        self.asked.setdefault(system, set()).update(asked)
        return snapshot

    def held(self, system: str) -> Snapshot:
        """Return what this verification has asked so far."""
        snapshot, known = super().held(system), self._fresh.get(system, set())
        answers = {query: answer for query, answer in snapshot.answers.items() if query in known}
        return replace(snapshot, answers=answers)
