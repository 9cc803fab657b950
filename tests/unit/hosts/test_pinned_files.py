"""Files of the controller that go to nodes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from provision.hosts.pinned_files import digest_of_file
from provision.inventory.models.inventory import Inventory


def test_all_files_of_a_large_bundle_are_hashed_once_for_all_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    real = hashlib.file_digest

    def counted(stream: Any, name: str) -> Any:
        hashed.append(stream.name)
        return real(stream, name)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    inventory = Inventory.model_construct()
    files = [tmp_path / f"{number}.tar" for number in range(200)]
    for file in files:
        file.write_text(file.name)
    nodes = [[digest_of_file(inventory, file, ()) for file in files] for _ in range(3)]
    assert nodes[0] == nodes[1] == nodes[2]
    assert len(hashed) == len(files)


def test_a_file_that_was_changed_is_hashed_again(tmp_path: Path) -> None:
    file, inventory = tmp_path / "k3s", Inventory.model_construct()
    file.write_text("one")
    before = digest_of_file(inventory, file, ())
    file.write_text("another")
    assert digest_of_file(inventory, file, ()) == hashlib.sha256(b"another").hexdigest() != before
