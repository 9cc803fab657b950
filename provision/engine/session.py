"""The open systems of a run: one driver, one lock and one snapshot each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from pydantic import SecretStr

from provision.connections.contracts import Endpoint
from provision.contracts.driver import Driver, Hold, Keeper
from provision.contracts.resource import AnswerId
from provision.contracts.snapshot import Snapshot
from provision.contracts.system import NotThere, SystemSpec, Way
from provision.engine import workers
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, ProvisionError, Transient

T = TypeVar("T")
ATTEMPTS = 3
LONGEST_PAUSE = 30.0
"""Seconds between two attempts."""
CLOCK_TICK = 1.0
"""Hosts note the end of a lock in whole seconds."""
PATIENCE = 2.0
"""Seconds that all connections together have to close."""


class AwayError(Permanent):
    """A system cannot be reached now, by what was seen elsewhere."""

    def __init__(self, system: str, away: NotThere) -> None:
        super().__init__(Diagnostic("SYSTEM_AWAY", away.reason, subject=system))
        self.system = system
        self.away = away


@dataclass(slots=True)
class System:
    """One system of the session.

    Args:
        spec: what it is.
        lock: held while it is asked or acted on.
        driver: once it was opened.
        endpoint: where it was opened.
        way: by which of its ways, an index.
        snapshot: its latest answers.
        error: why it gave no answers the last time.
        claimed: questions of roles and resources; others (those of verification) are dropped after changes.
        trips: round trips of drivers that were closed.
        hold: the lock that protects it, while this run acts on it.
        since: monotonic seconds of its oldest answer.
    """

    spec: SystemSpec
    lock: workers.SystemLock = field(default_factory=workers.SystemLock)
    driver: Driver | None = None
    endpoint: Endpoint | None = None
    way: int = 0
    snapshot: Snapshot | None = None
    error: ProvisionError | None = None
    claimed: set[Any] = field(default_factory=set)
    trips: int = 0
    hold: Hold | None = None
    since: float = 0.0


class Session:
    """All systems of a site, opened when first asked and kept until closed.

    Args:
        specs: all systems by name.
        open_driver: makes a driver from a spec and its endpoint.
        learn: gets every secret among the answers before anything can show it.
    """

    def __init__(
        self,
        specs: Mapping[str, SystemSpec],
        open_driver: Callable[[SystemSpec, Endpoint], Driver],
        learn: Callable[[SecretStr], None] = lambda _: None,
    ) -> None:
        self._open = open_driver
        self._learn = learn
        self.systems = {name: System(spec) for name, spec in specs.items()}
        self.awaited: set[str] = set()
        """Systems that were asked and have not answered yet, for those who watch."""
        self._down: set[str] = set()  # subjects that reboot: ways through them are the last to be tried
        self._by_subject: dict[str, list[str]] = {}
        self._dependents: dict[str, set[str]] = {name: set() for name in specs}
        self._readers: dict[AnswerId, set[str]] = {}  # systems whose endpoints follow from an answer
        for name, spec in specs.items():
            self._by_subject.setdefault(spec.subject, []).append(name)
            for way in spec.ways:
                for other, queries in way.questions.items():
                    if other in self._dependents:
                        self._dependents[other].add(name)
                    for query in queries:
                        self._readers.setdefault((other, query), set()).add(name)

    # ------------------------------------------------------------ looking

    def snapshots(self) -> dict[str, Snapshot]:
        """Return the answers at hand by system."""
        return self.basis(self.systems)

    def snapshot(self, name: str) -> Snapshot | None:
        """Return the answers of one system at hand."""
        system = self.systems.get(name)
        return system.snapshot if system else None

    def basis(self, names: Iterable[str]) -> dict[str, Snapshot]:
        """Return the answers of some systems at hand; those without answers are left out."""
        return {name: held for name in names if (held := self.snapshot(name)) is not None}

    def has(self, name: str, queries: Iterable[Any]) -> bool:
        """Whether the answers to some questions are at hand."""
        snapshot = self.snapshot(name)
        return snapshot is not None and not snapshot.missing(queries)

    def subject_of(self, name: str) -> str:
        """Return whose system it is."""
        system = self.systems.get(name)
        return system.spec.subject if system else ""

    def of_subject(self, subject: str) -> list[str]:
        """Return the systems that belong to a subject."""
        return list(self._by_subject.get(subject, ()))

    def trips(self) -> dict[str, int]:
        """Return the round trips so far by system, those never asked left out."""
        counts = {
            name: system.trips + (system.driver.round_trips if system.driver else 0)
            for name, system in self.systems.items()
        }
        return {name: count for name, count in counts.items() if count}

    # ------------------------------------------------------------ asking

    def ask(self, name: str, queries: Iterable[Any], cancel: Cancel, *, fresh: bool = False) -> Snapshot:
        """Return answers: those at hand, and the missing ones (all if `fresh`) by one round trip.

        Raises:
            AwayError: it is not there now.
            ProvisionError: it gives no answers.
            Interrupted: the run must leave.
        """
        system = self._system(name)
        with system.lock.held(cancel):
            asked = frozenset(queries)
            held = system.snapshot
            missing = asked if fresh or held is None else held.missing(asked)
            if held is not None and not missing:
                return held
            self.awaited.add(name)
            began = time.monotonic()
            try:
                newer = self.call(name, lambda driver: driver.answer(missing, cancel), cancel)
            finally:
                self.awaited.discard(name)
            for answer in newer.answers.values():
                if isinstance(answer, SecretStr):
                    self._learn(answer)
            if held is None:
                system.since = began
            # Another thread may have dropped it meanwhile.
            system.snapshot = newer if system.snapshot is None else system.snapshot.updated(newer)
            system.error = None
            return system.snapshot

    def ask_known(self, name: str, queries: Iterable[Any], cancel: Cancel) -> Snapshot | None:
        """Return answers of a system that has answered before, None of another one.

        What another step has dropped in the meantime is asked again.

        Raises:
            ProvisionError: it gives no answers.
            Interrupted: the run must leave.
        """
        return None if self.snapshot(name) is None else self.ask(name, queries, cancel)

    def call(self, name: str, work: Callable[[Driver], T], cancel: Cancel) -> T:
        """Call a driver of a system; where its way fails, one that is opened through the next way.

        The caller holds the system's lock. An error that `work` raises means that nothing began.

        Raises:
            AwayError: it is not there now.
            ProvisionError: no way leads to it, or it gives no answers.
            Interrupted: the run must leave.
        """
        system = self._system(name)
        failed: dict[int, Transient] = {}  # by way
        while True:
            try:
                on_this_way = partial(work, self._open_driver(name, failed, cancel))
                is_last = len(failed) + 1 >= len(system.spec.ways)
                return retrying(on_this_way, cancel, ATTEMPTS if is_last else 1)
            except ProvisionError as error:
                if isinstance(error, Transient) and system.driver is not None:
                    failed[system.way] = error
                    if len(failed) < len(system.spec.ways):
                        self._shut(system)
                        continue
                # Of a way that was open, its failure says more than why others lead nowhere.
                system.error = next(iter(failed.values()), error)
                raise system.error from None

    def driver(self, name: str, cancel: Cancel) -> Driver:
        """Return the open driver of a system; the caller holds its lock.

        Raises:
            AwayError: it is not there now.
            ProvisionError: what its endpoint follows from cannot be asked.
        """
        try:
            return self._open_driver(name, frozenset(), cancel)
        except ProvisionError as error:
            self._system(name).error = error
            raise

    def _open_driver(self, name: str, failed: Collection[int], cancel: Cancel) -> Driver:
        system = self._system(name)
        if system.driver is None:
            way, endpoint = self._first_way(name, failed, cancel)
            if isinstance(endpoint, NotThere):
                raise AwayError(name, endpoint)
            system.way, system.endpoint = way, endpoint
            system.driver = self._open(system.spec, endpoint)
        return system.driver

    def endpoint(self, name: str, cancel: Cancel) -> Endpoint | NotThere:
        """Return where a system is, by what others answer (they are asked if need be).

        Raises:
            ProvisionError: no way leads to it, and one of the others gives no answers.
        """
        return self._first_way(name, frozenset(), cancel)[1]

    def _first_way(
        self, name: str, failed: Collection[int], cancel: Cancel
    ) -> tuple[int, Endpoint | NotThere]:
        """Return the first way that leads somewhere; else the most promising reason why none does."""
        ways = self._system(name).spec.ways
        order = [index for index in range(len(ways)) if index not in failed]
        order.sort(key=lambda index: self._is_cut(ways[index]))
        closed: list[tuple[int, NotThere]] = []
        errors: list[ProvisionError] = []
        for index in order:
            try:
                snapshots = {
                    other: self._held(other, queries) or self.ask(other, queries, cancel)
                    for other, queries in ways[index].questions.items()
                }
            except ProvisionError as error:
                errors.append(error)
                continue
            endpoint = ways[index].endpoint(snapshots)
            if not isinstance(endpoint, NotThere):
                return index, endpoint
            closed.append((index, endpoint))
        # What comes later in this run counts more than what is off, and that more than what is silent.
        errors.sort(key=lambda error: not (isinstance(error, AwayError) and error.away.late))
        if closed and not (errors and isinstance(errors[0], AwayError) and errors[0].away.late):
            index, away = min(closed, key=lambda way: (not way[1].late, way[1].excused, way[1].absent))
            return index, replace(away, absent=away.absent and not errors)  # who is silent may have it
        raise errors[0]

    def _held(self, name: str, queries: Iterable[Any]) -> Snapshot | None:
        """Return the answers at hand, if they suffice, without waiting for who holds the system's lock."""
        return self.snapshot(name) if self.has(name, queries) else None

    def _is_cut(self, way: Way) -> bool:
        """Whether a way leads through a subject that reboots, or a system that gave no answers."""
        is_down = any(self.subject_of(other) in self._down for other in way.questions)
        return is_down or self.error_of(way.questions) is not None

    def error_of(self, names: Iterable[str]) -> ProvisionError | None:
        """Return why the first of some systems that was asked gave no answers, or None."""
        asked = (self.systems[name] for name in names if name in self.systems)
        silent = (system.error for system in asked if system.snapshot is None)
        return next((error for error in silent if error is not None), None)

    def _system(self, name: str) -> System:
        try:
            return self.systems[name]
        except KeyError:
            raise Permanent(Diagnostic("SYSTEM_UNKNOWN", f"there is no system {name!r}")) from None

    # ------------------------------------------------------------ locks

    def guard(self, name: str, run: str, cancel: Cancel) -> bool:
        """Hold the lock of a system that another one keeps; tell whether it was just taken.

        It is held until `release` or `release_unused`. The caller holds the system's own lock. A host locks
        itself with each action, and has no keeper.

        Raises:
            ProvisionError: another run holds it (exit 6), or its keeper gives no answers.
            Interrupted: the run must leave.
        """
        system = self._system(name)
        keeper = self.systems.get(system.spec.guard)
        if keeper is None or (system.hold is not None and system.hold.alive):
            return False
        with keeper.lock.held(cancel):
            driver = self.driver(system.spec.guard, cancel)
            if not isinstance(driver, Keeper):
                return False
            system.hold = retrying(lambda: driver.hold(run, name, cancel), cancel)
        if system.hold.idle(run) <= time.monotonic() - system.since + CLOCK_TICK:
            # Another run acted since: what any step was planned from may be different by now.
            system.snapshot = None
        return True

    def release(self) -> None:
        """Free all locks that `guard` took."""
        for system in self.systems.values():
            _free(system)

    def release_unused(self, name: str) -> None:
        """Free the lock of a system that no step needs any more, unless somebody acts there all the same.

        Whoever acts there later takes it again; what another run did meanwhile voids the answers then.
        """
        system = self.systems.get(name)
        if system is not None and system.hold is not None:
            with system.lock.held_now() as is_held:
                if is_held:
                    _free(system)

    # ------------------------------------------------------------ forgetting

    def claim(self, name: str, queries: Iterable[Any]) -> None:
        """Note that roles or resources look at these answers."""
        if name in self.systems:
            self.systems[name].claimed.update(queries)

    def forget(self, name: str, queries: Iterable[Any], cancel: Cancel, *, unclaimed: bool = False) -> None:
        """Drop some answers, and if `unclaimed` those that no role or resource looks at."""
        system = self._system(name)
        with system.lock.held(cancel):
            if system.snapshot is None:
                return
            kept = dict(system.snapshot.answers)
            unwanted = kept.keys() - system.claimed.copy() if unclaimed else set()
            for query in unwanted.union(queries):
                kept.pop(query, None)
            system.snapshot = replace(system.snapshot, answers=kept)

    def follow(self, answers: Iterable[AnswerId], cancel: Cancel) -> None:
        """Close connections whose endpoint has changed with new answers (a new host key)."""
        for name in {reader for answer in answers for reader in self._readers.get(answer, ())}:
            system = self.systems[name]
            if system.driver is None:
                continue
            way = system.spec.ways[system.way]
            held = {other: self._held(other, queries) for other, queries in way.questions.items()}
            snapshots = {other: snapshot for other, snapshot in held.items() if snapshot is not None}
            if len(snapshots) < len(held):
                continue
            endpoint = way.endpoint(snapshots)
            if not isinstance(endpoint, NotThere) and endpoint != system.endpoint:
                with system.lock.held(cancel):
                    self._shut(system)

    def void(self, subject: str, cancel: Cancel, *, keep: str = "") -> None:
        """Drop what is known of a subject's systems and of those behind them: it boots, or is another one.

        Args:
            subject: whose systems.
            cancel: ends the waiting for who uses them.
            keep: a system whose driver has followed the boot by itself and stays open.
        """
        self._down.discard(subject)
        for name in self.behind(subject):
            self.reset(name, cancel, close=name != keep)

    def behind(self, subject: str, *, movable: bool = True) -> frozenset[str]:
        """Return a subject's systems and all that are reached through them now.

        Args:
            subject: whose systems.
            movable: with those that could be reached by another way.
        """
        todo = self.of_subject(subject)
        behind: set[str] = set()
        while todo:
            name = todo.pop()
            if name not in behind:
                behind.add(name)
                todo.extend(other for other in self._dependents[name] if self._leads(name, other, movable))
        return frozenset(behind)

    def _leads(self, name: str, dependent: str, movable: bool) -> bool:
        """Whether the way in use to a system is cut without another one."""
        system = self.systems[dependent]
        ways = system.spec.ways
        if len(ways) == 1:
            return True
        return movable and system.driver is not None and name in ways[system.way].questions

    def is_cut_off(self, name: str, subjects: Collection[str]) -> bool:
        """Whether every way to a system leads through one of some subjects."""
        ways = self._system(name).spec.ways
        return all(any(self.subject_of(other) in subjects for other in way.questions) for way in ways)

    def move_away(self, subject: str, cancel: Cancel) -> None:
        """Close connections through a subject that is about to reboot, where there is another way."""
        self._down.add(subject)
        for name in self.behind(subject) - self.behind(subject, movable=False):
            with self.systems[name].lock.held(cancel):
                self._shut(self.systems[name])

    def reset(self, name: str, cancel: Cancel, *, close: bool = True) -> None:
        """Drop the answers of one system, and its connection."""
        system = self._system(name)
        with system.lock.held(cancel):
            system.snapshot = None
            system.error = None
            if close:
                self._shut(system)

    def close(self) -> None:
        """Close all drivers; what still blocks (a login that is never answered) is left behind."""
        closed = threading.Event()

        def shut() -> None:
            self.release()
            for system in self.systems.values():
                self._shut(system)
            closed.set()

        workers.start("close", shut)
        closed.wait(PATIENCE)

    def _shut(self, system: System) -> None:
        if system.driver is not None:
            system.trips += system.driver.round_trips
            with suppress(Exception):
                system.driver.close()
            system.driver = None


def _free(system: System) -> None:
    if system.hold is not None:
        system.hold.release()
        system.hold = None


def retrying(call: Callable[[], T], cancel: Cancel, attempts: int = ATTEMPTS) -> T:
    """Return what a read-only call returns, tried again with growing pauses while it fails transiently.

    Args:
        call: asks and changes nothing.
        cancel: ends the pauses.
        attempts: how often at most.

    Raises:
        Transient: the last attempt failed too.
        Interrupted: the run must leave.
    """
    for attempt in range(1, attempts):
        try:
            return call()
        except Transient as error:
            if cancel.draining:
                raise
            cancel.wait(min(error.retry_after * 2 ** (attempt - 1), LONGEST_PAUSE))
    return call()
