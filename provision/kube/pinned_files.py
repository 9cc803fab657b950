"""Files that the controller reads to use or to send them: declared, of a bundle, or downloaded and pinned."""

from __future__ import annotations

import contextlib
import hashlib
import json
import tarfile
import tempfile
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


def bundle_digest(inventory: Inventory, file: Path) -> str:
    """Return the SHA-256 that the manifest of the bundle has for a file; empty where it has none."""
    root = bundle_file(inventory)
    if root is None or not file.is_relative_to(root):
        return ""
    try:
        rows = json.loads((root / "manifest.json").read_text())["files"]
        place = file.relative_to(root).as_posix()
        return next((str(row["sha256"]) for row in rows if row["path"] == place), "")
    except (OSError, ValueError, TypeError, KeyError):
        return ""


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
        if listed and listed != digest:
            summary = f"{wanted.file} is not the file that the manifest of the bundle names"
            evidence = (f"manifest: {listed}", f"file:     {digest}")
            remedy = "make the bundle again: `provision bundle INVENTORY FOLDER`"
            raise UsageError(Diagnostic("BUNDLE_CHANGED", summary, evidence=evidence, remedy=remedy))
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
    return Blob(pin.sha256, read=partial(downloaded, wanted.url or pin.url, pin.sha256))


def downloaded(url: str, sha256: str) -> bytes:
    """Return a file of the web, or a chart of a registry, from the cache of this machine if it is there.

    Raises:
        Permanent, Transient: it cannot be downloaded, or is another file.
    """
    if url.startswith("oci://"):
        from provision.connections.digests import stored_chart  # noqa: PLC0415 - slow

        return stored_chart(url, sha256)
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


@lru_cache(maxsize=64)
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
