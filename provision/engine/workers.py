"""Own daemon threads: an executor's threads would be joined at exit and hold a second Ctrl-C."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from provision.values.cancel import Cancel, Interrupted

T = TypeVar("T")
OBSERVERS = 32
TICK = 0.2
"""Seconds after which a waiting main thread looks at the cancellation (and Python at signals)."""


def start(name: str, work: Callable[[], None]) -> None:
    """Run something on a daemon thread of its own."""
    threading.Thread(target=work, name=name, daemon=True).start()


def each(items: Iterable[T], work: Callable[[T], None], cancel: Cancel, limit: int = OBSERVERS) -> None:
    """Call `work` for all items on at most `limit` threads and return when all are done.

    Raises:
        Interrupted: the run must leave; what still blocks is left behind.
        BaseException: the first one that `work` raised.
    """
    todo = list(items)
    if len(todo) <= 1:
        limit = 1
    results: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    source = iter(todo)
    lock = threading.Lock()

    def run() -> None:
        while True:
            with lock:
                item = next(source, results)
            if item is results:
                return
            try:
                if cancel.leaving:
                    raise Interrupted  # noqa: TRY301 - ends this item like any other
                work(item)  # type: ignore[arg-type]  # the sentinel returned above
            except BaseException as error:  # noqa: BLE001 - carried to the caller's thread
                results.put(error)
            else:
                results.put(None)

    for number in range(min(limit, len(todo))):
        start(f"observe-{number}", run)
    first: BaseException | None = None
    for _ in todo:
        error = wait(results, cancel)
        first = first or error
    if first is not None:
        raise first


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
