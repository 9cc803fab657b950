"""The cache of images, named by the digest of their recipe, built once and shared by all labs.

A folder without a suffix holds complete images; its mtime is the last time that a lab was started with them.
Every folder has a lock, held while it is built, marked as used or removed.
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
    """The images of a lab: the containers' root filesystem, the VM image's folder, the served images."""

    rootfs: Path
    vm: Path | None
    served: tuple[Image, ...]

    @property
    def folders(self) -> frozenset[Path]:
        """The folders of the cache that contain them."""
        return frozenset({self.rootfs.parent, *(image.path.parent for image in self.served)})


def prepare(settings: LabSettings, progress: Progress, in_use: Callable[[], frozenset[Path]]) -> Images:
    """Return the images of a lab; build the missing ones. After a build, old images are removed.

    Args:
        settings: the lab.
        progress: called with one line before a slow operation and after a removal.
        in_use: returns the image folders that labs of this machine use.
    """
    cache_root().mkdir(parents=True, exist_ok=True)
    existing = _complete_folders()
    images = _build_missing(settings, progress)
    if _complete_folders() - existing:
        _remove_old(in_use() | images.folders, progress)
    return images


def use(images: Images) -> bool:
    """Mark images as used now; False if one of them was removed."""
    return all(_touch(folder) for folder in images.folders)


def _build_missing(settings: LabSettings, progress: Progress) -> Images:
    base = _cached("base", _digest("base"), lambda folder: recipe.build_base(folder, progress))
    if settings.driver == "container":
        digest = _digest("stand-in", *settings.images)
        folder = _cached("stand-in", digest, lambda folder: disk.build_stand_in(folder, settings.images))
        return Images(base / "rootfs", None, _images(folder, settings.images))

    names = tuple(dict.fromkeys((IMAGE, *settings.images)))  # the hypervisor always uses the plain image

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
    """Return the folder of a finished build; an interrupted build is discarded."""
    folder = cache_root() / f"{kind}-{digest[:20]}"
    with exclusive(_lock(folder)):
        if not folder.is_dir():
            unfinished = _unfinished(folder)
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            build(unfinished)
            unfinished.rename(folder)
        os.utime(folder)
    return folder


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
    """Return the folders of the cache, including those with only an unfinished build or a lock."""
    matches = (_ENTRY.fullmatch(path.name) for path in cache_root().iterdir())
    return {cache_root() / match[1] for match in matches if match}


def _complete_folders() -> set[Path]:
    return {folder for folder in _entries() if folder.is_dir()}


def _remove_old(keep: frozenset[Path], progress: Progress) -> None:
    """Remove images that no lab used for `KEEP_DAYS` days, and the remains of interrupted builds."""
    removed, freed = [], 0
    for folder in sorted(_entries() - keep):
        lock = take((_lock(folder),), 0)
        if lock is None:  # another process builds it or marks it as used
            continue
        with os.fdopen(lock):
            unfinished = _unfinished(folder)
            if folder.is_dir() and time.time() - folder.stat().st_mtime > KEEP_DAYS * 86400:
                shutil.rmtree(unfinished, ignore_errors=True)
                folder.rename(unfinished)  # an interrupted removal leaves no complete folder
            if unfinished.is_dir():
                freed += int(recipe.run(["du", "-s", "-B1", str(unfinished)]).split()[0])
                shutil.rmtree(unfinished, ignore_errors=True)
                removed.append(folder.name)
            if not folder.is_dir():
                _lock(folder).unlink(missing_ok=True)
    if removed:
        size, names = f"{freed / 2**30:.1f} GiB", ", ".join(removed)
        progress(f"removed old images from {cache_root()}, {size} freed: {names}")


def _lock(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.lock")


def _unfinished(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.new")
