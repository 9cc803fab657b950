"""What all unit tests share."""

from __future__ import annotations

import gc
import itertools
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

BEGAN = time.monotonic()
AIM = 10.0
"""Seconds that all unit tests may take."""


def pytest_collection_finish() -> None:
    """Let the garbage collector leave what stays: all tests, and all that they import."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell who adds a slow test: no test fails for it, since a busy machine is slow, too."""
    if time.monotonic() - BEGAN > AIM and not terminalreporter.config.option.markexpr:
        terminalreporter.write_line(slowest(terminalreporter.stats), yellow=True)


def slowest(reports: Mapping[str, Sequence[object]]) -> str:
    """Return the text that names the five slowest tests."""
    seconds: dict[str, float] = {}
    for each in itertools.chain.from_iterable(reports.values()):
        if isinstance(each, pytest.TestReport):  # one of setup, call or teardown
            seconds[each.nodeid] = seconds.get(each.nodeid, 0.0) + each.duration
    first = sorted(seconds, key=seconds.__getitem__, reverse=True)[:5]
    tests = "".join(f"\n  {seconds[name]:.1f} s  {name}" for name in first)
    return f"the unit tests took longer than {AIM:.0f} s; the slowest are{tests}"


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Iterator[Path]]:
    """Yield folders that do not exist yet; in memory where it can be, as a disk costs two seconds."""
    memory = Path("/dev/shm")  # noqa: S108 - mkdtemp makes a folder of our own in it
    if os.access(memory, os.W_OK) and not os.statvfs(memory).f_flag & os.ST_NOEXEC:
        with tempfile.TemporaryDirectory(prefix="unit-", dir=memory, ignore_cleanup_errors=True) as name:
            yield (Path(name) / str(number) for number in itertools.count())
    else:
        base = tmp_path_factory.mktemp("unit")
        yield (base / str(number) for number in itertools.count())


@pytest.fixture
def tmp_path(folders: Iterator[Path]) -> Path:
    """A new folder, without pytest's search for a free name and its link to the last one: both are slow."""
    folder = next(folders)
    folder.mkdir()
    return folder
