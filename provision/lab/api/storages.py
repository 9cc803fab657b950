"""Storages and their volumes: `local` for files, `local-disks` for disk images."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from provision.lab.api.errors import bad_parameter, failed

_KIB = 1024
_QCOW2_MAGIC = b"QFI\xfb"
# What one volume is rounded up to, by storage type.
_GRANULE = {"dir": 1, "zfspool": 1 << 20, "lvmthin": 4 << 20}
_FOLDERS = {"iso": "template/iso", "import": "import", "snippets": "snippets", "vztmpl": "template/cache"}


@dataclass(frozen=True, slots=True)
class Storage:
    """One storage as `storage.cfg` would define it.

    Args:
        name: storage id.
        kind: dir for files; zfspool or lvmthin (by name only: the images are qcow2 files) for disks.
        content: content types.
        disabled: nothing can be done with it.
        nodes: nodes that have it; none for all.
    """

    name: str
    kind: str
    content: tuple[str, ...]
    disabled: bool = False
    nodes: tuple[str, ...] = ()

    def hindrance(self, node: str) -> str:
        """Return why a node cannot use it, in the words of pve-storage, or nothing."""
        if self.disabled:
            return f"storage '{self.name}' is disabled"
        if self.nodes and node not in self.nodes:
            return f"storage '{self.name}' is not available on node '{node}'"
        return ""


LOCAL = Storage("local", "dir", ("iso", "import", "snippets"))
LOCAL_DISKS = Storage("local-disks", "lvmthin", ("images", "rootdir"))


@dataclass(frozen=True, slots=True)
class Volume:
    """One volume; size in bytes."""

    volid: str
    content: str
    format: str
    size: int
    ctime: int
    vmid: int | None
    path: Path


def format_size(size: int) -> str:
    """Print bytes as Proxmox VE does in `size=`: the largest unit that leaves no fraction."""
    value = -(-size // _KIB)
    for unit in "KMG":
        if value % _KIB:
            return f"{value}{unit}"
        value //= _KIB
    return f"{value}T"


def parse_size(text: str) -> int:
    """Read `10G` and the like as bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)", text)
    if match is None:
        raise failed(f"unable to parse size '{text}'")
    return int(float(match[1]) * _KIB ** " KMGT".index(match[2] or " "))


def virtual_size(path: Path) -> int:
    """Return the bytes that a guest sees of an image file (raw, or qcow2 by its header)."""
    with path.open("rb") as file:
        header = file.read(32)
    if header[:4] == _QCOW2_MAGIC:
        return int.from_bytes(header[24:32], "big")
    return path.stat().st_size


class Storages:
    """All storages of the node, in folders below the lab's state.

    Args:
        folder: holds one folder a storage.
        storages: their definitions.
        node: the node that uses them.
    """

    def __init__(self, folder: Path, storages: tuple[Storage, ...], node: str = "") -> None:
        self._folder = folder
        self._node = node
        self.all = {storage.name: storage for storage in storages}
        for storage in storages:
            for content in storage.content:
                if storage.kind == "dir" and content in {"iso", "import"}:
                    self.files(storage, content).mkdir(parents=True, exist_ok=True)
            self._root(storage).mkdir(parents=True, exist_ok=True)
            for leftover in self._root(storage).rglob("*.tmp_dwnl.*"):
                leftover.unlink(missing_ok=True)

    def _root(self, storage: Storage) -> Path:
        return self._folder / storage.name

    def get(self, name: str) -> Storage:
        """Return a storage; 500 for an unknown one, and for one that the node cannot use."""
        if name not in self.all:
            raise failed(f"storage '{name}' does not exist")
        hindrance = self.all[name].hindrance(self._node)
        if hindrance:
            raise failed(hindrance)
        return self.all[name]

    def for_images(self, name: str) -> Storage:
        """Return a storage for disks; 400 when it holds none."""
        storage = self.get(name)
        if "images" not in storage.content:
            raise bad_parameter("storage", f"storage '{name}' does not support vm images")
        return storage

    def files(self, storage: Storage, content: str) -> Path:
        """Return the folder of a content type on this machine."""
        return self._root(storage) / content

    def shown_path(self, content: str, name: str) -> str:
        """Return the path that the real node would name in its texts."""
        return f"/var/lib/vz/{_FOLDERS[content]}/{name}"

    def usage(self, storage: Storage) -> tuple[int, int, int]:
        """Return total, used and available bytes."""
        disk_usage = shutil.disk_usage(self._root(storage))
        return disk_usage.total, disk_usage.total - disk_usage.free, disk_usage.free

    def volumes(self, storage: Storage) -> Iterator[Volume]:
        """Walk the volumes of a storage; one that vanishes meanwhile is left out."""
        for name, path, content in self._paths(storage):
            with contextlib.suppress(FileNotFoundError):
                yield self._volume(storage, name, path, content)

    def _paths(self, storage: Storage) -> Iterator[tuple[str, Path, str]]:
        for content in ("import", "iso"):
            if content in storage.content:
                for path in sorted(self.files(storage, content).iterdir()):
                    if path.is_file() and not path.name.startswith(".") and ".tmp_dwnl." not in path.name:
                        yield f"{content}/{path.name}", path, content
        if "images" in storage.content:
            for path in sorted(self._root(storage).glob("vm-*")):
                if path.suffix in {".qcow2", ".raw"}:
                    yield path.stem, path, "images"

    def _volume(self, storage: Storage, name: str, path: Path, content: str) -> Volume:
        owner = re.match(r"vm-(\d+)-", name)
        status = path.stat()
        size = status.st_size if content != "images" else self.size(storage, path)
        kind = "raw" if content == "images" else path.suffix.removeprefix(".")
        return Volume(
            volid=f"{storage.name}:{name}",
            content=content,
            format="iso" if content == "iso" else kind,
            size=size,
            ctime=int(status.st_mtime),
            vmid=int(owner[1]) if owner else None,
            path=path,
        )

    def size(self, storage: Storage, path: Path) -> int:
        """Return a disk's bytes, rounded up as the storage type would."""
        granule = _GRANULE[storage.kind]
        return -(-virtual_size(path) // granule) * granule

    def find(self, volid: str) -> Volume | None:
        """Return a volume by its id, or None; 500 when the storage is unknown."""
        name = volid.partition(":")[0]
        return next((volume for volume in self.volumes(self.get(name)) if volume.volid == volid), None)

    def image_path(self, storage: Storage, volume: str, suffix: str = ".qcow2") -> Path:
        """Return where a disk image with this volume name is put."""
        return self._root(storage) / f"{volume}{suffix}"

    def new_disk_name(self, storage: Storage, vmid: int) -> str:
        """Return the first free disk name of a VM."""
        taken = {path.stem for path in self._root(storage).glob(f"vm-{vmid}-disk-*")}
        number = 0
        while f"vm-{vmid}-disk-{number}" in taken:
            number += 1
        return f"vm-{vmid}-disk-{number}"

    def owned(self, vmid: int) -> list[Volume]:
        """Return all disk images that carry a VM's number."""
        return [
            volume for storage in self.all.values() for volume in self.volumes(storage) if volume.vmid == vmid
        ]
