"""Files that the controller reads to use or to send them: declared, of a bundle, or downloaded and pinned."""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from provision.connections.download import download_folder, stored
from provision.contracts.remedy import Blob
from provision.inventory import Inventory
from provision.inventory.lock import Pin
from provision.inventory.tree import KeyPath
from provision.values.diagnostics import Diagnostic, Source
from provision.values.errors import Permanent, UsageError

PACKAGES = "apt"
"""Folder of a bundle with a part of the distributions' archives."""
_BUNDLE = ("sources", "bundle")
CONTAINERS = "containers"
"""Folder of a bundle with the archives of container images."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file as an inventory declares it.

    Args:
        section: part of the lock file.
        name: under which it is pinned there.
        label: what it is, for people.
        file: where it is on this machine; None where it is downloaded.
        url: where it is downloaded from.
        release: a part of the pin's address; a pin of another release does not count.
        path: keys of the inventory that declare it.
        otherwise: what a person declares instead of a pin.
    """

    section: Literal["binaries", "charts"]
    name: str
    label: str
    file: Path | None
    url: str
    release: str
    path: KeyPath
    otherwise: str


def bundle_file(inventory: Inventory, *parts: str) -> Path | None:
    """Return where the bundle has a file; None where the inventory uses no bundle.

    A bundle that is one tar file is unpacked into the cache of this machine.
    """
    sources = inventory.sources
    if sources.mode != "bundle" or sources.bundle is None:
        return None
    bundle = Path(sources.bundle).expanduser()
    if bundle.is_file():
        bundle = _unpacked(bundle, inventory.source(("sources", "bundle")))
    return bundle.joinpath(*parts)


def _unpacked(archive: Path, source: Source | None) -> Path:
    """Unpack a bundle once for each size and time of change.

    Raises:
        UsageError: it is no archive, or cannot be unpacked here.
    """
    status = archive.stat()
    name = f"{archive.resolve()} {status.st_size} {status.st_mtime_ns}"
    folder = download_folder() / f"bundle-{hashlib.sha256(name.encode()).hexdigest()}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent) as beside, tarfile.open(archive) as packed:
            packed.extractall(Path(beside) / "bundle", filter="data")
            with contextlib.suppress(FileExistsError):  # another process was faster
                (Path(beside) / "bundle").rename(folder)
    except (tarfile.TarError, OSError) as error:
        raise UsageError(
            Diagnostic(
                "BUNDLE_UNREADABLE",
                f"{archive} cannot be unpacked: {error}",
                source=source,
                remedy="make it again: `provision bundle INVENTORY FOLDER --archive FILE`",
            )
        ) from None
    return folder


@dataclass(frozen=True, slots=True)
class BundledFile:
    """A file of a bundle, as its manifest has it.

    Args:
        file: where it is on this machine.
        sha256: its digest in hex.
        images: names of the container image that it is the archive of.
        release: whose package index it is.
        hosts: for which hosts a package or an index is.
    """

    file: Path
    sha256: str
    images: tuple[str, ...] = ()
    release: str = ""
    hosts: tuple[str, ...] = ()


def _listed(root: Path) -> tuple[BundledFile, ...] | None:
    """Return the files that the manifest of a bundle names; None where it cannot be read."""
    manifest = root / "manifest.json"
    try:
        status = manifest.stat()
    except OSError:
        return None
    return _parsed(root, manifest, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=4)  # each role of each node asks
def _parsed(root: Path, manifest: Path, _size: int, _changed: int) -> tuple[BundledFile, ...] | None:
    try:
        rows = json.loads(manifest.read_text())["files"]
        return tuple(
            BundledFile(
                _within(root, str(row["path"]), f"{PACKAGES}/" if row.get("hosts") else ""),
                str(row["sha256"]),
                tuple(map(str, row.get("images", ()))),
                str(row.get("release", "")),
                tuple(map(str, row.get("hosts", ()))),
            )
            for row in rows
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _within(root: Path, path: str, folder: str) -> Path:
    """Return a file of a bundle; a manifest of somebody else must not send other files to hosts.

    Its path is one on hosts, too: a line of plain text.
    """
    is_plain = path.isprintable() and "\\" not in path and path.startswith(folder)
    if path.startswith("/") or ".." in path.split("/") or not is_plain:
        raise ValueError(path)
    return root / path


def bundle_digest(inventory: Inventory, file: Path) -> str:
    """Return the SHA-256 that the manifest of the bundle has for a file; empty where it has none."""
    root = bundle_file(inventory)
    rows = _listed(root) if root is not None and file.is_relative_to(root) else None
    return next((row.sha256 for row in rows or () if row.file == file), "")


def bundled_images(inventory: Inventory) -> tuple[BundledFile, ...]:
    """Return the archives of container images that a bundle has; none where the inventory uses no bundle.

    Raises:
        UsageError: BUNDLE_UNREADABLE, BUNDLE_CHANGED, or one of them cannot be read.
    """
    images = tuple(row for row in _rows(inventory) if row.images)
    for row in images:
        _check_listed(row.file, row.sha256, digest_of_file(inventory, row.file, _BUNDLE))
    return images


def _rows(inventory: Inventory) -> tuple[BundledFile, ...]:
    """Return the files of the bundle that an inventory uses, if it uses one.

    Raises:
        UsageError: BUNDLE_UNREADABLE.
    """
    root = bundle_file(inventory)
    rows = _listed(root) if root is not None else ()
    if rows is None:
        summary = f"{root} has no manifest.json, or it is not one of a bundle"
        remedy = "make it again: `provision bundle INVENTORY FOLDER`"
        source = inventory.source(_BUNDLE)
        raise UsageError(Diagnostic("BUNDLE_UNREADABLE", summary, source=source, remedy=remedy))
    return rows


def bundled_packages(inventory: Inventory, host: str) -> tuple[BundledFile, ...]:
    """Return the packages and indexes of apt that a bundle has for a host; none where it has none.

    Raises:
        UsageError: BUNDLE_UNREADABLE.
    """
    return tuple(row for row in _rows(inventory) if host in row.hosts)


def listed_blob(inventory: Inventory, row: BundledFile) -> Blob:
    """Return a file that the manifest of a bundle names.

    Raises:
        UsageError: FILE_UNREADABLE, BUNDLE_CHANGED.
    """
    _check_listed(row.file, row.sha256, digest_of_file(inventory, row.file, _BUNDLE))
    return Blob(row.sha256, read=partial(mapped, row.file))


def bundled_blob(inventory: Inventory, place: Sequence[str], sha256: str, keys: KeyPath) -> Blob:
    """Return a large file of a bundle, which stays on its disk until it is sent.

    Args:
        inventory: which uses a bundle.
        place: of the file in the bundle.
        sha256: what it must be, in hex.
        keys: of the inventory that declare it.

    Raises:
        UsageError: FILE_UNREADABLE, BUNDLE_CHANGED.
    """
    file = bundle_file(inventory, *place)
    if file is None:
        raise ValueError("the inventory uses no bundle")
    _check_listed(file, sha256, digest_of_file(inventory, file, keys))
    return Blob(sha256, read=partial(mapped, file))


def mapped(file: Path) -> memoryview:
    """Return the content of a file that stays on its disk.

    Raises:
        Permanent: it cannot be read.
    """
    try:
        with file.open("rb") as stream:
            return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:  # an empty file has nothing to map
        summary = f"cannot read {file}: {error}"
        raise Permanent(Diagnostic("FILE_UNREADABLE", summary, remedy="put the file there")) from None


def _check_listed(file: Path, listed: str, digest: str) -> None:
    """Refuse a file that is not the one of the manifest, or the one that is pinned.

    Raises:
        UsageError: BUNDLE_CHANGED.
    """
    if listed == digest:
        return
    summary = f"{file} is not the file that the bundle should have"
    evidence = (f"expected: {listed}", f"file:     {digest}")
    remedy = "make the bundle again: `provision bundle INVENTORY FOLDER`"
    raise UsageError(Diagnostic("BUNDLE_CHANGED", summary, evidence=evidence, remedy=remedy))


def mirror_url(inventory: Inventory, *parts: str) -> str:
    """Return where the mirror has a file; empty where the inventory uses no mirror."""
    sources = inventory.sources
    if sources.mode != "mirror" or not sources.mirror:
        return ""
    return "/".join((sources.mirror.rstrip("/"), *(quote(part, safe="") for part in parts)))


def pinned_blob(inventory: Inventory, wanted: Wanted) -> Blob:
    """Return digest and reader of a file.

    Raises:
        UsageError: BINARY_UNPINNED, CHART_UNPINNED, DIGEST_CHANGED, or the file cannot be read.
    """
    if wanted.file is not None:
        digest = digest_of_file(inventory, wanted.file, wanted.path)
        change = inventory.lock.change_of(wanted.section, wanted.name, wanted.file, digest)
        if change is not None:
            raise UsageError(replace(change, source=inventory.source(wanted.path)))
        listed = bundle_digest(inventory, wanted.file)
        if listed:
            _check_listed(wanted.file, listed, digest)
        return Blob(digest, read=partial(content_of, wanted.file, digest))
    pins: dict[str, Pin] = getattr(inventory.lock, wanted.section)
    pin = pins.get(wanted.name)
    if pin is None or wanted.release not in pin.url:
        code = "CHART_UNPINNED" if wanted.section == "charts" else "BINARY_UNPINNED"
        raise UsageError(
            Diagnostic(
                code,
                f"the digest of {wanted.label} is not known: what is downloaded must be pinned",
                source=inventory.source(wanted.path),
                remedy=f"pin it: `provision pin {inventory.file or 'INVENTORY'}`,"
                f" or declare {wanted.otherwise}",
            )
        )
    return Blob(pin.sha256, read=partial(downloaded, inventory, wanted.url or pin.url, pin.sha256))


def downloaded(inventory: Inventory, url: str, sha256: str) -> bytes:
    """Return a file of the web, or a chart of a registry, from the cache of this machine if it is there.

    Raises:
        Permanent, Transient: it cannot be downloaded, or is another file.
    """
    if url.startswith("oci://"):
        from provision.connections.digests import stored_chart  # noqa: PLC0415 - slow
        from provision.connections.registry_logins import logins_of  # noqa: PLC0415 - the same

        return stored_chart(url, sha256, logins_of(inventory))
    return stored(url, sha256)


def digest_of_file(inventory: Inventory, file: Path, path: KeyPath) -> str:
    """Return the SHA-256 of a file of this machine, read once for each size and time of change.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        status = file.stat()
        return _hashed(file, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise UsageError(
            Diagnostic(
                "FILE_UNREADABLE",
                f"cannot read {file}: {error.strerror}",
                source=inventory.source(path),
                remedy="correct the name, or create the file",
            )
        ) from None


@lru_cache(maxsize=16384)  # more than a bundle has files: every node asks for all of them in turn
def _hashed(file: Path, _size: int, _changed: int) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def content_of(file: Path, sha256: str) -> bytes:
    """Return the content of a file of this machine.

    Raises:
        Permanent: it cannot be read, or has changed since the plan.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        summary = f"cannot read {file}: {error.strerror}"
        raise Permanent(Diagnostic("FILE_UNREADABLE", summary, remedy="put the file there")) from None
    if hashlib.sha256(data).hexdigest() != sha256:
        summary = f"{file} has changed since the plan was made"
        raise Permanent(Diagnostic("FILE_CHANGED", summary, remedy="run the command again"))
    return data
