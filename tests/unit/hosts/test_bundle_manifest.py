"""The manifest of a bundle that somebody else has made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from provision.hosts.pinned_files import _listed


def manifest(folder: Path, path: str) -> Path:
    row = {"path": path, "sha256": "0" * 64, "images": ["a.example/b:1"]}
    (folder / "manifest.json").write_text(json.dumps({"files": [row]}))
    return folder


@pytest.mark.parametrize("path", ["/root/.ssh/id_ed25519", "../key", "containers/../../key"])
def test_a_file_outside_of_the_bundle_is_none_of_it(tmp_path: Path, path: str) -> None:
    assert _listed(manifest(tmp_path, path)) is None


def test_a_file_of_the_bundle_is_listed(tmp_path: Path) -> None:
    listed = _listed(manifest(tmp_path, "containers/b..c.tar"))
    assert listed is not None
    assert [row.file for row in listed] == [tmp_path / "containers/b..c.tar"]
