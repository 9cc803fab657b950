"""What all unit tests share."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield folders that do not exist yet."""
    base = tmp_path_factory.mktemp("unit")
    return (base / str(number) for number in itertools.count())


@pytest.fixture
def tmp_path(folders: Iterator[Path]) -> Path:
    """A new folder, without pytest's search for a free name and its link to the last one: both are slow."""
    folder = next(folders)
    folder.mkdir()
    return folder
