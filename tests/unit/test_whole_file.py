from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from provision.values.whole_file import write_whole


@pytest.mark.parametrize("lasting", [True, False])
def test_a_file_is_replaced_with_its_mode_and_nothing_stays_beside_it(tmp_path: Path, lasting: bool) -> None:
    file = tmp_path / "kept"
    file.write_text("old")
    file.chmod(0o644)
    write_whole(file, "grün\r\n", lasting=lasting)
    assert file.read_bytes() == "grün\r\n".encode()
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kept"
    file.write_text("old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(file, "new")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_in_its_way_is_not_followed(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    beside = tmp_path / f".kept.{os.getpid()}.{threading.get_ident()}"
    beside.symlink_to(theirs)
    write_whole(tmp_path / "kept", "ours", lasting=False)
    assert theirs.read_text() == "theirs"
    assert (tmp_path / "kept").read_text() == "ours"
