"""The cache of images, named by the digest of their recipe, made once and shared by all labs."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from provision.lab import disk, recipe
from provision.lab.locks import exclusive
from provision.lab.settings import IMAGE, LabSettings, cache_root

Progress = Callable[[str], None]


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


def prepare(settings: LabSettings, progress: Progress) -> Images:
    """Return the images of a lab; make those that are not there."""
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
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    done = root / f"{kind}-{digest[:20]}"
    if done.is_dir():
        return done
    with exclusive(root / f".{kind}-{digest[:20]}.lock"):
        if not done.is_dir():
            half = root / f".{kind}-{digest[:20]}.new"
            shutil.rmtree(half, ignore_errors=True)
            half.mkdir()
            build(half)
            half.rename(done)
    return done
