"""How many SSH connections stay open, and which of them are closed."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from typing import Any

import pytest

from provision.connections.ssh_pool import RESERVED, SshPool
from provision.values.errors import Permanent


class Socket:
    def shutdown(self, how: int) -> None:
        pass


class Transport:
    """Counts what is open."""

    sock = Socket()

    def __init__(self, open_now: set[str], name: str) -> None:
        self._open_now, self._name = open_now, name
        open_now.add(name)

    def close(self) -> None:
        self._open_now.discard(self._name)


class Connection:
    """A connection that opens when it is used."""

    def __init__(self, pool: SshPool, open_now: set[str], name: str) -> None:
        self._pool, self._open_now, self._name = pool, open_now, name
        self._chain: list[Any] = []
        self.openings = 0

    @property
    def is_open(self) -> bool:
        return bool(self._chain)

    def detach(self) -> list[Any]:
        chain, self._chain = self._chain, []
        return chain

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        with self._pool.use(self, self._name):
            if not self._chain:
                self.openings += 1
                self._chain = [Transport(self._open_now, self._name)]
            yield

    def use(self) -> None:
        with self.used():
            pass


class Site:
    def __init__(self, size: int, count: int) -> None:
        self.open_now: set[str] = set()
        self.pool = SshPool(size)
        self.connections = [Connection(self.pool, self.open_now, f"n{index}") for index in range(count)]


def limit_descriptors(monkeypatch: pytest.MonkeyPatch, soft: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))


def test_connections_stay_open_while_there_is_room() -> None:
    site = Site(size=3, count=3)
    for _ in range(2):
        for connection in site.connections:
            connection.use()
    assert [connection.openings for connection in site.connections] == [1, 1, 1]


def test_the_least_recently_used_idle_connection_makes_room() -> None:
    site = Site(size=2, count=3)
    first, second, third = site.connections
    first.use()
    second.use()
    first.use()
    third.use()
    assert site.open_now == {"n0", "n2"}


def test_a_closed_connection_opens_again_when_it_is_used() -> None:
    site = Site(size=1, count=2)
    first, second = site.connections
    first.use()
    second.use()
    first.use()
    assert (first.openings, second.openings, site.open_now) == (2, 1, {"n0"})


def test_a_connection_in_use_is_never_closed_for_another_one() -> None:
    site = Site(size=1, count=3)
    first, second, third = site.connections
    with first.used(), second.used():
        third.use()
        assert site.open_now == {"n0", "n1"}
    assert len(site.open_now) == 1
    assert (first.openings, second.openings) == (1, 1)


def test_a_connection_with_two_users_is_in_use_until_both_end() -> None:
    site = Site(size=1, count=2)
    first, second = site.connections
    with first.used():
        first.use()
        second.use()
        assert "n0" in site.open_now


def test_a_connection_that_was_closed_frees_its_place() -> None:
    site = Site(size=2, count=3)
    first, second, third = site.connections
    first.use()
    second.use()
    second.detach()[0].close()
    site.pool.forget(second)
    third.use()
    assert site.open_now == {"n0", "n2"}


def test_fewer_descriptors_mean_fewer_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_descriptors(monkeypatch, RESERVED + 2)
    site = Site(size=64, count=4)
    for connection in site.connections:
        connection.use()
    assert len(site.open_now) == 2


def test_too_few_descriptors_are_said_with_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_descriptors(monkeypatch, RESERVED + 1)
    site = Site(size=64, count=2)
    first, second = site.connections
    with first.used(), pytest.raises(Permanent, match="TOO_FEW_DESCRIPTORS") as caught, second.used():
        pass
    (problem,) = caught.value.diagnostics
    assert str(RESERVED + 1) in problem.summary
    assert "ulimit -n" in problem.remedy
    second.use()
    assert site.open_now == {"n1"}


def test_an_unlimited_process_is_not_taken_for_a_poor_one(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_descriptors(monkeypatch, resource.RLIM_INFINITY)
    site = Site(size=64, count=3)
    for connection in site.connections:
        connection.use()
    assert len(site.open_now) == 3
