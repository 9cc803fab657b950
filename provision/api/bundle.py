"""A bundle: everything that an inventory downloads, in one folder, each file with its checksum."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from provision.api.bundle_images import Archive, fetch_archive, forget_parts, image_archives
from provision.api.bundle_packages import AptFile, fetch_packages
from provision.api.pinned_downloads import declared_downloads
from provision.api.pins import lock_path, pin_all
from provision.contracts.downloads import Download, LocalFile
from provision.inventory import Inventory
from provision.inventory.lock import Pin, read_lock
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import ProvisionError, UsageError
from provision.values.whole_file import write_whole

if TYPE_CHECKING:
    from provision.connections.registry_logins import Logins

MANIFEST = "manifest.json"
LAYOUT = 1
"""Version of the folder's layout."""
Progress = Callable[[str, int, int], None]
"""Receives the name of a file, the bytes read so far, and all bytes (0 where unknown)."""


@dataclass(frozen=True, slots=True)
class Item:
    """One file of a bundle.

    Args:
        path: in the bundle.
        url: where it comes from; `file:NAME` for a file of this machine.
        sha256: its digest in hex.
        file: where it is on this machine, if it is not downloaded.
    """

    path: str
    url: str
    sha256: str
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class Bundled:
    """What was done with one file.

    Args:
        path: in the bundle.
        sha256: its digest in hex.
        size: bytes.
        url: where it comes from, without secrets.
        is_new: whether it was fetched now.
        images: names of the container image that it is the archive of.
        release: whose package index it is.
        hosts: which hosts need the index or package.
    """

    path: str
    sha256: str
    size: int
    url: str
    is_new: bool
    images: tuple[str, ...] = ()
    release: str = ""
    hosts: tuple[str, ...] = ()

    @property
    def row(self) -> dict[str, object]:
        """Its row of the manifest."""
        row: dict[str, object] = {
            "path": self.path,
            "sha256": self.sha256,
            "size": self.size,
            "url": self.url,
        }
        more = {"images": list(self.images), "release": self.release, "hosts": list(self.hosts)}
        return {**row, **{key: value for key, value in more.items() if value}}


def make_bundle(
    inventory: Inventory,
    folder: Path,
    cancel: Cancel,
    *,
    progress: Progress = lambda _name, _read, _all: None,
    helm: Path | None = None,
    note: Callable[[str], None] = lambda _text: None,
    installed: Path | None = None,
) -> tuple[Bundled, ...]:
    """Fetch all files of an inventory that are not in the folder yet; pins what is not pinned.

    It can be ended at any time: what is complete stays, and what was cut goes on from there.

    Args:
        inventory: what it declares.
        folder: the bundle; made if it is missing.
        cancel: ends it early.
        progress: receives how far a download is.
        helm: the program that renders charts, so that their container images are known; None for that of the
            inventory, if it declares one.
        note: receives what a person should know.
        installed: see `fetch_packages`.

    Raises:
        Refused: a digest has changed.
        Permanent, Transient: a download failed, or a chart cannot be rendered.
        UsageError: a file of this machine cannot be read, or the folder cannot be written.
        Interrupted: the run must leave.
    """
    from provision.connections.registry_logins import logins_of  # noqa: PLC0415 - slow

    fetched = _as_fetched(inventory)
    logins = logins_of(inventory)
    pin_all(fetched, cancel)
    lock, problems = read_lock(lock_path(inventory))
    if problems:
        raise UsageError(problems)
    fetched = fetched.with_sources(fetched.sources, lock)
    results: list[Bundled] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        results.extend(_bundled(inventory, item, folder, cancel, progress) for item in items_of(fetched))
        used_helm = helm or next((folder / one.path for one in results if one.path.startswith("helm/")), None)
        archives = image_archives(fetched, folder, used_helm, cancel, note, logins)
        former = _former_rows(folder)
        mirrors = inventory.sources.registries
        results.extend(_archived(one, folder, former, mirrors, cancel, progress, logins) for one in archives)
        forget_parts(folder)
        results.extend(
            _of_apt(file, folder)
            for file in fetch_packages(fetched, folder, cancel, note, progress, installed)
        )
        rows = [one.row for one in results]
        text = json.dumps({"version": LAYOUT, "inventory": inventory.name, "files": rows}, indent=2) + "\n"
        manifest = folder / MANIFEST
        if not manifest.exists() or manifest.read_text() != text:
            write_whole(manifest, text, 0o644)
    except OSError as error:
        summary = f"{folder} cannot be written: {error.strerror}"
        raise UsageError(Diagnostic("FILE_NOT_WRITTEN", summary, remedy="name another folder")) from None
    return tuple(results)


def _former_rows(folder: Path) -> Mapping[str, Mapping[str, object]]:
    """Return the rows of the manifest that is there, by path; none where it cannot be read."""
    try:
        rows = json.loads((folder / MANIFEST).read_text())["files"]
        return {str(row["path"]): row for row in rows}
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return {}


def _archived(
    archive: Archive,
    folder: Path,
    former: Mapping[str, Mapping[str, object]],
    mirrors: Mapping[str, str],
    cancel: Cancel,
    progress: Progress,
    logins: Logins,
) -> Bundled:
    from provision.connections.fetch import sha256_of  # noqa: PLC0415 - slow

    target, row = folder / archive.path, former.get(archive.path, {})
    known = target.is_file() and (row.get("url"), row.get("images")) == (archive.url, list(archive.names))
    is_new = not known or sha256_of(target) != row.get("sha256")
    if is_new:
        try:
            fetch_archive(archive, folder, mirrors, cancel, progress, logins)
        except ProvisionError as error:
            raise type(error)([replace(one, untouched=_KEPT) for one in error.diagnostics]) from None
    size = target.stat().st_size
    return Bundled(archive.path, sha256_of(target), size, archive.url, is_new, archive.names)


def _of_apt(file: AptFile, folder: Path) -> Bundled:
    from provision.connections.download import plain_url  # noqa: PLC0415 - slow

    size, url = (folder / file.path).stat().st_size, plain_url(file.url)
    return Bundled(file.path, file.sha256, size, url, file.is_new, release=file.release, hosts=file.hosts)


def _as_fetched(inventory: Inventory) -> Inventory:
    """Return the inventory as one that downloads all: from its mirror, or the original places."""
    mirror = inventory.sources.mirror if inventory.sources.mode == "mirror" else None
    sources = inventory.sources.model_copy(update={"mode": "mirror", "mirror": mirror, "bundle": None})
    return inventory.with_sources(sources, inventory.lock)


def items_of(inventory: Inventory) -> Iterator[Item]:
    """Yield the files of a bundle, each once.

    Raises:
        UsageError: one of them is not pinned.
    """
    for name in inventory.images:
        pin = inventory.image_pin(name)
        if pin is not None:
            file = PurePosixPath(urlsplit(pin.url).path).name
            yield Item(f"images/{pin.sha256}/{file}", pin.url, pin.sha256)
    for download in declared_downloads(inventory):
        pins: dict[str, Pin] = getattr(inventory.lock, download.section)
        held = pins.get(download.name)
        if held is None:
            summary = f"{download.name} is not pinned"
            remedy = f"pin it: `provision pin {inventory.file or 'INVENTORY'}`"
            raise UsageError(Diagnostic("BINARY_UNPINNED", summary, remedy=remedy))
        yield _item(download, held)


def _item(download: Download, pin: Pin) -> Item:
    local = download.origin.file if isinstance(download.origin, LocalFile) else None
    place = download.place or (download.section, download.name)
    return Item("/".join(place), pin.url, pin.sha256, local)


def _bundled(inventory: Inventory, item: Item, folder: Path, cancel: Cancel, progress: Progress) -> Bundled:
    from provision.connections.download import plain_url  # noqa: PLC0415 - slow
    from provision.connections.fetch import fetch_file, sha256_of  # noqa: PLC0415 - the same
    from provision.hosts.pinned_files import content_of, downloaded  # noqa: PLC0415 - the same

    target = folder / item.path
    if target.is_file() and sha256_of(target) == item.sha256:
        return Bundled(item.path, item.sha256, target.stat().st_size, plain_url(item.url), is_new=False)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        if item.file is not None:
            _write(target, content_of(item.file, item.sha256))
        elif item.url.startswith("oci://"):
            _write(target, downloaded(inventory, item.url, item.sha256))
        else:
            fetch_file(item.url, item.sha256, target, cancel, partial(progress, item.path))
    except ProvisionError as error:
        raise type(error)([replace(one, untouched=_KEPT) for one in error.diagnostics]) from None
    return Bundled(item.path, item.sha256, target.stat().st_size, plain_url(item.url), is_new=True)


_KEPT = "What is complete stays in the bundle; the next call goes on."


def _write(target: Path, data: bytes) -> None:
    part = target.with_name(f"{target.name}.part")
    part.write_bytes(data)
    part.replace(target)


def pack(folder: Path, archive: Path) -> None:
    """Write a bundle as one tar file, the same for the same content.

    Raises:
        UsageError: it cannot be written.
    """
    part = archive.with_name(f"{archive.name}.part")
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.suffix != ".part")
    try:
        with tarfile.open(part, "w") as packed:
            for file in files:
                member = packed.gettarinfo(file, str(file.relative_to(folder)))
                member.uid = member.gid = member.mtime = 0
                member.uname = member.gname = ""
                member.mode = 0o644
                with file.open("rb") as stream:
                    packed.addfile(member, stream)
        shutil.move(part, archive)
    except OSError as error:
        summary = f"{archive} cannot be written: {error.strerror}"
        raise UsageError(Diagnostic("FILE_NOT_WRITTEN", summary, remedy="name another file")) from None
