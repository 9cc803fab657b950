from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from provision.lab import disk, images, recipe
from provision.lab.images import Images
from provision.lab.locks import exclusive
from provision.lab.settings import LabSettings

SETTINGS = LabSettings("lab", "container", {"pve": "198.18.0.5"})
DAY = 86400


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of images whose recipes take no time."""

    def base(folder: Path, _progress: object) -> None:
        (folder / "rootfs").mkdir()

    def stand_in(folder: Path, names: tuple[str, ...]) -> None:
        for name in names:
            (folder / f"{name}.qcow2").write_bytes(b"disk")
            (folder / f"{name}.sha256").write_text("ab\n")

    monkeypatch.setattr(recipe, "build_base", base)
    monkeypatch.setattr(disk, "build_stand_in", stand_in)
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv("PROVISION_CACHE", str(folder))
    return folder


def old(cache: Path, name: str, days: float) -> Path:
    """Leave an image that was used some days ago."""
    folder = cache / name
    folder.mkdir()
    (folder / "disk.qcow2").write_bytes(b"x" * 9000)
    used = time.time() - days * DAY
    os.utime(folder, (used, used))
    return folder


def prepare(in_use: frozenset[Path] = frozenset()) -> tuple[Images, list[str]]:
    said: list[str] = []
    return images.prepare(SETTINGS, said.append, lambda: in_use), said


UNUSED, USED, FRESH, CUT_OFF = (f"vm-{digit * 20}" for digit in "0123")


def test_a_new_image_ends_old_ones_that_no_lab_uses_and_says_so_in_a_line(cache: Path) -> None:
    old(cache, UNUSED, images.KEEP_DAYS + 1)
    (cache / f".{UNUSED}.lock").touch()
    used = old(cache, USED, images.KEEP_DAYS + 1)
    fresh = old(cache, FRESH, images.KEEP_DAYS - 1)
    old(cache, f".{CUT_OFF}.new", 0)
    foreign = old(cache, "something else", 99)
    made, said = prepare(frozenset({used}))
    left = {path for path in cache.iterdir() if path.is_dir()}
    assert left == {used, fresh, foreign, *made.folders}
    assert not (cache / f".{UNUSED}.lock").exists()
    (line,) = said
    assert UNUSED in line
    assert CUT_OFF in line
    assert "0.0 GiB" in line
    assert USED not in line


def test_nothing_is_removed_as_long_as_nothing_is_made(cache: Path) -> None:
    first, _ = prepare()
    unused = old(cache, UNUSED, images.KEEP_DAYS + 1)
    again, said = prepare()
    assert again == first
    assert said == []
    assert unused.is_dir()


def test_an_image_that_is_being_made_or_taken_into_use_stays(cache: Path) -> None:
    held, half = old(cache, UNUSED, images.KEEP_DAYS + 1), old(cache, f".{CUT_OFF}.new", 0)
    with exclusive(cache / f".{UNUSED}.lock"), exclusive(cache / f".{CUT_OFF}.lock"):
        _, said = prepare()
    assert said == []
    assert held.is_dir()
    assert half.is_dir()


def test_use_is_noted_and_an_image_that_is_gone_is_told(cache: Path) -> None:
    made, _ = prepare()
    for folder in made.folders:
        os.utime(folder, (0, 0))
    assert images.use(made)
    assert all(time.time() - folder.stat().st_mtime < DAY for folder in made.folders)
    made.served[0].path.parent.rename(cache / "elsewhere")
    assert not images.use(made)
