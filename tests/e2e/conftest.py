"""Order and choice of the end-to-end tests: the story on virtual machines first, since it takes longest."""

from __future__ import annotations

import pytest

FULL = ("test_lab_qemu.py", "test_containers_story.py", "test_containers_sweep.py")
"""Files of `make story-full` only: the core story proves the same on virtual machines."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name in FULL:
            item.add_marker(pytest.mark.full)
    items.sort(key=lambda item: item.path.name != "test_story.py")  # stable: files keep their own order
