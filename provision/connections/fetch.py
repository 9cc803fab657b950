"""Downloads one file to a disk: goes on where it was cut, and keeps nothing that is another file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from provision.connections.download import CHUNK, continued, leaving_room, not_pinned
from provision.values.cancel import Cancel

PART = ".part"
Progress = Callable[[int, int], None]
"""Receives the bytes so far, and all bytes (0 where unknown)."""


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file.

    Raises:
        OSError: it cannot be read.
    """
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fetch_file(
    url: str,
    sha256: str,
    target: Path,
    cancel: Cancel,
    progress: Progress = lambda _read, _all: None,
    headers: Mapping[str, str] = MappingProxyType({}),
    size: int | None = None,
) -> int:
    """Download a file unless it is there; return its size.

    What arrived before a cut stays in `NAME.part`, and the next call asks for the rest of it. The headers
    go to the host of the URL alone. Where the size is known, no more bytes than these are taken.

    Raises:
        Permanent: DOWNLOAD_WRONG: it is another file, of which nothing is kept; DOWNLOAD_NO_SPACE: the disk
            is full, and what arrived stays; or see `digest_of`.
        Transient: it is not reached, or not complete.
        Interrupted: the run must leave.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_file() and sha256_of(target) == sha256:
        return target.stat().st_size
    part = target.with_name(target.name + PART)
    begun = part.stat().st_size if part.exists() else 0
    digest = hashlib.sha256()
    if begun:
        with part.open("rb") as beginning:
            while chunk := beginning.read(CHUNK):
                digest.update(chunk)
    with part.open("ab") as stream:
        write = leaving_room(url, target.parent, stream.write)

        def keep(chunk: bytes) -> None:
            if size is not None and stream.tell() + len(chunk) > size:
                part.unlink()
                raise not_pinned(url, sha256, f"more than {size} bytes")
            write(chunk)
            digest.update(chunk)

        def restart() -> None:
            nonlocal digest
            digest = hashlib.sha256()
            stream.truncate(0)

        continued(url, begun, cancel, progress, keep, restart, headers)
    if digest.hexdigest() != sha256:
        part.unlink()
        raise not_pinned(url, sha256, digest.hexdigest())
    part.replace(target)
    return target.stat().st_size
