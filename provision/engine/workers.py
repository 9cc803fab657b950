"""Own daemon threads: an executor's threads would be joined at exit and hold a second Ctrl-C."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from provision.values.cancel import Cancel, Interrupted

T = TypeVar("T")
OBSERVERS = 32
TICK = 0.2
"""Seconds after which a waiting main thread looks at the cancellation (and Python at signals)."""


LOCK_TICK = 0.5
"""Seconds after which a thread that waits for a lock looks at the cancellation; hundreds may wait for one."""


class SystemLock:
    """A reentrant lock; who waits for it stops waiting when the run must leave.

    It may be held for minutes, by a host that reboots.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    @contextmanager
    def held(self, cancel: Cancel) -> Iterator[None]:
        """Hold the lock.

        Raises:
            Interrupted: the run must leave.
        """
        if not self._lock.acquire(blocking=False):
            while not self._lock.acquire(timeout=LOCK_TICK):
                if cancel.leaving:
                    raise Interrupted
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def held_now(self) -> Iterator[bool]:
        """Hold the lock if nobody else does, and tell whether it is held; wait for nobody."""
        taken = self._lock.acquire(blocking=False)
        try:
            yield taken
        finally:
            if taken:
                self._lock.release()


def start(name: str, work: Callable[[], None]) -> None:
    """Run something on a daemon thread of its own."""
    threading.Thread(target=work, name=name, daemon=True).start()


def each(items: Iterable[T], work: Callable[[T], None], cancel: Cancel, limit: int = OBSERVERS) -> None:
    """Call `work` for all items on at most `limit` threads and return when all are done.

    Raises:
        Interrupted: the run must leave; what still blocks is left behind.
        BaseException: the first one that `work` raised.
    """
    todo: queue.SimpleQueue[T] = queue.SimpleQueue()
    results: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    for item in items:
        todo.put(item)
    count = todo.qsize()

    def run() -> None:
        with suppress(queue.Empty):
            while True:
                results.put(_error_of(work, todo.get_nowait(), cancel))

    for number in range(min(limit, count)):
        start(f"observe-{number}", run)
    errors = [wait(results, cancel) for _ in range(count)]
    first = next((error for error in errors if error is not None), None)
    if first is not None:
        raise first


def _error_of(work: Callable[[T], None], item: T, cancel: Cancel) -> BaseException | None:
    """Return what `work` raised, to be carried to the caller's thread."""
    if cancel.leaving:
        return Interrupted()
    try:
        work(item)
    except BaseException as error:  # noqa: BLE001 - carried over
        return error
    return None


def wait(source: queue.SimpleQueue[T], cancel: Cancel) -> T:
    """Return the next item.

    Raises:
        Interrupted: the run must leave.
    """
    while True:
        if cancel.leaving:
            raise Interrupted
        try:
            return source.get(timeout=TICK)
        except queue.Empty:
            continue


def wait_for(event: threading.Event, cancel: Cancel) -> None:
    """Return when an event has come.

    Raises:
        Interrupted: the run must leave.
    """
    while not event.wait(TICK):
        if cancel.leaving:
            raise Interrupted
