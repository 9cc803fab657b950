"""The open systems of a run: one driver, one lock and one snapshot each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from provision.connections.contracts import Endpoint
from provision.contracts.driver import Driver, Hold, Keeper
from provision.contracts.snapshot import Snapshot
from provision.contracts.system import NotThere, SystemSpec
from provision.engine import workers
from provision.engine.retry import retrying
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, ProvisionError

PATIENCE = 2.0
"""Seconds that all connections together have to close."""


class AwayError(Permanent):
    """A system cannot be reached now, by what was seen elsewhere."""

    def __init__(self, system: str, away: NotThere) -> None:
        super().__init__(Diagnostic("SYSTEM_AWAY", away.reason, subject=system))
        self.away = away


@dataclass(slots=True)
class System:
    """One system of the session.

    Args:
        spec: what it is.
        lock: held while it is asked or acted on.
        driver: once it was opened.
        endpoint: where it was opened.
        snapshot: its latest answers.
        error: why it gave no answers the last time.
        claimed: questions of roles and resources; others (those of verification) are dropped after changes.
        trips: round trips of drivers that were closed.
        hold: the lock that protects it, while this run acts on it.
    """

    spec: SystemSpec
    lock: threading.RLock = field(default_factory=threading.RLock)
    driver: Driver | None = None
    endpoint: Endpoint | None = None
    snapshot: Snapshot | None = None
    error: ProvisionError | None = None
    claimed: set[Any] = field(default_factory=set)
    trips: int = 0
    hold: Hold | None = None


class Session:
    """All systems of a site, opened when first asked and kept until closed.

    Args:
        specs: all systems by name.
        open_driver: makes a driver from a spec and its endpoint.
    """

    def __init__(
        self, specs: Mapping[str, SystemSpec], open_driver: Callable[[SystemSpec, Endpoint], Driver]
    ) -> None:
        self._open = open_driver
        self.systems = {name: System(spec) for name, spec in specs.items()}
        self.awaited: set[str] = set()
        """Systems that were asked and have not answered yet, for those who watch."""
        self._dependents: dict[str, set[str]] = {name: set() for name in specs}
        for name, spec in specs.items():
            for each in spec.questions:
                if each in self._dependents:
                    self._dependents[each].add(name)

    # ------------------------------------------------------------ looking

    def snapshots(self) -> dict[str, Snapshot]:
        """Return the answers at hand by system."""
        return {name: system.snapshot for name, system in self.systems.items() if system.snapshot is not None}

    def snapshot(self, name: str) -> Snapshot | None:
        """Return the answers of one system at hand."""
        system = self.systems.get(name)
        return system.snapshot if system else None

    def basis(self, names: Iterable[str]) -> dict[str, Snapshot]:
        """Return the answers of some systems at hand; those without answers are left out."""
        return {name: held for name in names if (held := self.snapshot(name)) is not None}

    def subject_of(self, name: str) -> str:
        """Return whose system it is."""
        system = self.systems.get(name)
        return system.spec.subject if system else ""

    def of_subject(self, subject: str) -> list[str]:
        """Return the systems that belong to a subject."""
        return [name for name, system in self.systems.items() if system.spec.subject == subject]

    def trips(self) -> dict[str, int]:
        """Return the round trips so far by system, those never asked left out."""
        counts = {
            name: system.trips + (system.driver.round_trips if system.driver else 0)
            for name, system in self.systems.items()
        }
        return {name: count for name, count in counts.items() if count}

    # ------------------------------------------------------------ asking

    def ask(
        self, name: str, queries: Iterable[Any], cancel: Cancel, *, fresh: bool = False, attempts: int = 3
    ) -> Snapshot:
        """Return answers: those at hand, and the missing ones (all if `fresh`) by one round trip.

        Raises:
            AwayError: it is not there now.
            ProvisionError: it gives no answers.
            Interrupted: the run must leave.
        """
        system = self._system(name)
        with system.lock:
            wanted = frozenset(queries)
            held = system.snapshot
            missing = wanted if fresh or held is None else held.missing(wanted)
            if held is not None and not missing:
                return held
            driver = self.driver(name, cancel)
            self.awaited.add(name)
            try:
                newer = retrying(lambda: driver.answer(missing, cancel), cancel, attempts)
            except ProvisionError as error:
                system.error = error
                raise
            finally:
                self.awaited.discard(name)
            return self._taken(system, newer)

    def _taken(self, system: System, newer: Snapshot) -> Snapshot:
        held = system.snapshot
        system.snapshot = newer if held is None else held.updated(newer)
        system.error = None
        return system.snapshot

    def driver(self, name: str, cancel: Cancel) -> Driver:
        """Return the open driver of a system; the caller holds its lock.

        Raises:
            AwayError: it is not there now.
            ProvisionError: what its endpoint follows from cannot be asked.
        """
        system = self._system(name)
        if system.driver is None:
            endpoint = self.endpoint(name, cancel)
            if isinstance(endpoint, NotThere):
                system.error = AwayError(name, endpoint)
                raise system.error
            system.endpoint = endpoint
            try:
                system.driver = self._open(system.spec, endpoint)
            except ProvisionError as error:
                system.error = error
                raise
        return system.driver

    def endpoint(self, name: str, cancel: Cancel) -> Endpoint | NotThere:
        """Return where a system is, by what others answer (they are asked if need be).

        Raises:
            ProvisionError: one of the others gives no answers.
        """
        spec = self._system(name).spec
        seen = {other: self.ask(other, queries, cancel) for other, queries in spec.questions.items()}
        return spec.endpoint(seen)

    def _system(self, name: str) -> System:
        try:
            return self.systems[name]
        except KeyError:
            raise Permanent(Diagnostic("SYSTEM_UNKNOWN", f"there is no system {name!r}")) from None

    # ------------------------------------------------------------ locks

    def guard(self, name: str, run: str, cancel: Cancel) -> bool:
        """Hold the lock of a system that another one keeps until `release`; tell whether it was just taken.

        The caller holds the system's own lock. A host locks itself with each action, and has no keeper.

        Raises:
            ProvisionError: another run holds it (exit 6), or its keeper gives no answers.
            Interrupted: the run must leave.
        """
        system = self._system(name)
        keeper = self.systems.get(system.spec.guard)
        if keeper is None or (system.hold is not None and system.hold.alive):
            return False
        with keeper.lock:
            driver = self.driver(system.spec.guard, cancel)
            if not isinstance(driver, Keeper):
                return False
            system.hold = retrying(lambda: driver.hold(run, name, cancel), cancel)
        return True

    def release(self) -> None:
        """Free all locks that `guard` took."""
        for system in self.systems.values():
            if system.hold is not None:
                system.hold.release()
                system.hold = None

    # ------------------------------------------------------------ forgetting

    def claim(self, name: str, queries: Iterable[Any]) -> None:
        """Note that roles or resources look at these answers."""
        if name in self.systems:
            self.systems[name].claimed.update(queries)

    def forget(self, name: str, queries: Iterable[Any] = (), *, unclaimed: bool = False) -> None:
        """Drop some answers, and if `unclaimed` those that no role or resource looks at."""
        system = self._system(name)
        with system.lock:
            if system.snapshot is None:
                return
            gone = set(queries)
            kept = {
                query: answer
                for query, answer in system.snapshot.answers.items()
                if query not in gone and (not unclaimed or query in system.claimed)
            }
            system.snapshot = replace(system.snapshot, answers=kept)

    def follow(self, names: Iterable[str]) -> None:
        """Close connections whose endpoint has changed with new answers of some systems (a new host key)."""
        for name in {dependent for each in names for dependent in self._dependents[each]}:
            system = self.systems[name]
            if system.driver is None:
                continue
            seen = {}
            for other, queries in system.spec.questions.items():
                held = self.systems[other].snapshot if other in self.systems else None
                if held is None or held.missing(queries):
                    break
                seen[other] = held
            else:
                found = system.spec.endpoint(seen)
                if not isinstance(found, NotThere) and found != system.endpoint:
                    with system.lock:
                        self._shut(system)

    def void(self, subject: str, *, keep: str = "") -> None:
        """Drop what is known of a subject's systems and of those behind them: it boots, or is another one.

        Args:
            subject: whose systems.
            keep: a system whose driver has followed the boot by itself and stays open.
        """
        for name in self.behind(subject):
            self.reset(name, close=name != keep)

    def behind(self, subject: str) -> frozenset[str]:
        """Return a subject's systems and all whose endpoints follow from theirs."""
        todo = self.of_subject(subject)
        seen: set[str] = set()
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo.extend(self._dependents[name])
        return frozenset(seen)

    def reset(self, name: str, *, close: bool = True) -> None:
        """Drop the answers of one system, and its connection."""
        system = self._system(name)
        with system.lock:
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
