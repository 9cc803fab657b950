"""The cache of images, named by the digest of their recipe, made once and shared by all labs.

A folder with a whole name holds whole images; its time of change says when a lab was last brought up with it.
It is made, taken into use and removed under its lock.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from provision.lab import disk, recipe
from provision.lab.locks import exclusive, take
from provision.lab.settings import IMAGE, LabSettings, cache_root

Progress = Callable[[str], None]
KEEP_DAYS = 7
_ENTRY = re.compile(r"\.?((?:base|vm|stand-in)-[0-9a-f]{20})(?:\.new|\.lock)?")


@dataclass(frozen=True, slots=True)
class Image:
    """One finished disk image."""

    name: str
    path: Path
    sha256: str


@dataclass(frozen=True, slots=True)
class Images:
    """What a lab runs from: the containers' root filesystem, the VM image's folder, what is served."""

    rootfs: Path
    vm: Path | None
    served: tuple[Image, ...]

    @property
    def folders(self) -> frozenset[Path]:
        """The folders of the cache that they lie in."""
        return frozenset({self.rootfs.parent, *(image.path.parent for image in self.served)})


def prepare(settings: LabSettings, progress: Progress, in_use: Callable[[], frozenset[Path]]) -> Images:
    """Return the images of a lab; make those that are not there. Where one was made, old ones go.

    Args:
        settings: the lab.
        progress: told, in a line, what takes time and what went.
        in_use: tells the folders of images that labs of this machine run from.
    """
    cache_root().mkdir(parents=True, exist_ok=True)
    before = _whole()
    made = _made(settings, progress)
    if _whole() - before:
        _remove_old(in_use() | made.folders, progress)
    return made


def use(made: Images) -> bool:
    """Note that a lab is brought up with images; False when some of them are gone."""
    return all(_touch(folder) for folder in made.folders)


def _made(settings: LabSettings, progress: Progress) -> Images:
    base = _cached("base", _digest("base"), lambda folder: recipe.build_base(folder, progress))
    if settings.driver == "container":
        digest = _digest("stand-in", *settings.images)
        folder = _cached("stand-in", digest, lambda folder: disk.build_stand_in(folder, settings.images))
        return Images(base / "rootfs", None, _images(folder, settings.images))

    names = tuple(dict.fromkeys((IMAGE, *settings.images)))  # the hypervisor's own is the plain one

    def build(folder: Path) -> None:
        recipe.build_vm_root(base / "rootfs", folder / "root", progress)
        progress("writing the disk image")
        disk.build_disks(folder, folder / "root", names)
        shutil.rmtree(folder / "root")

    folder = _cached("vm", _digest("vm", *names), build)
    return Images(base / "rootfs", folder, _images(folder, settings.images))


def _images(folder: Path, names: tuple[str, ...]) -> tuple[Image, ...]:
    return tuple(
        Image(name, folder / f"{name}.qcow2", (folder / f"{name}.sha256").read_text().strip())
        for name in names
    )


def _digest(*words: str) -> str:
    digest = hashlib.sha256()
    sources = [Path(recipe.__file__), Path(disk.__file__), recipe.ASSETS / "lab-time-sources"]
    for source in sources[:1] + sources[2:] if words[0] == "base" else sources:
        digest.update(source.read_bytes())
    digest.update("\0".join(words).encode())
    return digest.hexdigest()


def _cached(kind: str, digest: str, build: Callable[[Path], None]) -> Path:
    """Return the folder of a finished build; a build that was cut off is thrown away."""
    done = cache_root() / f"{kind}-{digest[:20]}"
    with exclusive(_lock(done)):
        if not done.is_dir():
            half = _half(done)
            shutil.rmtree(half, ignore_errors=True)
            half.mkdir()
            build(half)
            half.rename(done)
        os.utime(done)
    return done


def _touch(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    with exclusive(_lock(folder)):
        try:
            os.utime(folder)
        except FileNotFoundError:
            return False
    return True


def _entries() -> set[Path]:
    """Return the folders that the cache has, or has a half or a lock of."""
    found = (_ENTRY.fullmatch(path.name) for path in cache_root().iterdir())
    return {cache_root() / match[1] for match in found if match}


def _whole() -> set[Path]:
    return {folder for folder in _entries() if folder.is_dir()}


def _remove_old(keep: frozenset[Path], progress: Progress) -> None:
    """Remove what was not used for some days, and what builds that were cut off left."""
    removed, freed = [], 0
    for folder in sorted(_entries() - keep):
        lock = take((_lock(folder),), 0)
        if lock is None:  # somebody makes it, or begins to use it
            continue
        with os.fdopen(lock):
            half = _half(folder)
            if folder.is_dir() and time.time() - folder.stat().st_mtime > KEEP_DAYS * 86400:
                shutil.rmtree(half, ignore_errors=True)
                folder.rename(half)  # a removal that is cut off leaves no whole name
            if half.is_dir():
                freed += int(recipe.run(["du", "-s", "-B1", str(half)]).split()[0])
                shutil.rmtree(half, ignore_errors=True)
                removed.append(folder.name)
            if not folder.is_dir():
                _lock(folder).unlink(missing_ok=True)
    if removed:
        size, names = f"{freed / 2**30:.1f} GiB", ", ".join(removed)
        progress(f"removed old images from {cache_root()}, {size} freed: {names}")


def _lock(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.lock")


def _half(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.new")
