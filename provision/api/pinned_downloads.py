"""The digest of one download that is no image: from its vendor's list, index or registry, or of the file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from provision.api.domains import domains
from provision.contracts.downloads import Download, ListedFile, LocalFile, RegistryChart
from provision.inventory import Inventory
from provision.inventory.lock import Pin, file_url
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import ProvisionError, UsageError
from provision.values.references import load_object

if TYPE_CHECKING:
    from provision.api.pins import Former


def declared_downloads(inventory: Inventory) -> Iterator[Download]:
    """Yield what the domains download for an inventory."""
    for domain in domains():
        if domain.downloads and domain.concerns(inventory):
            yield from load_object(domain.downloads)(inventory)


def pin_of(former: Former, download: Download, held: Pin | None, cancel: Cancel) -> Pin | None:
    """Return the pin of a download; None where its digest has changed and that is not accepted.

    Raises:
        UsageError: its file cannot be read.
        Permanent, Transient: its digest cannot be had.
    """
    known = held if held is not None and _is_of(held, download) else None
    if known is not None and not former.looks and not isinstance(download.origin, LocalFile):
        return former.take(download.name, held, known, known.sha256)
    try:
        new = _present(download, former.inventory, cancel)
    except ProvisionError as error:
        raise type(error)(
            [_explained(former.inventory, download, one) for one in error.diagnostics]
        ) from None
    if known is not None and known.sha256 != new.sha256 and not former.accept:
        former.refuse(_changed(former.inventory, download, known, new))
        return None
    return former.take(download.name, held, new, known.sha256 if known is not None else None)


def _is_of(pin: Pin, download: Download) -> bool:
    """Whether a pin is of the same release, wherever it was taken from."""
    origin = download.origin
    if isinstance(origin, LocalFile):
        return pin.url == file_url(origin.file)
    if isinstance(origin, ListedFile):
        return origin.release in pin.url and pin.url.endswith(f"/{download.name}")
    if isinstance(origin, RegistryChart):
        return pin.url == f"{origin.address}:{origin.version}"
    # An archive may have any name; where it has another one, the index is read each time.
    archive = unquote(urlsplit(pin.url).path.rpartition("/")[2])
    return archive == f"{origin.chart}-{origin.version}.tgz"


def _present(download: Download, inventory: Inventory, cancel: Cancel) -> Pin:
    from provision.connections import digests  # noqa: PLC0415 - slow
    from provision.connections.download import stored  # noqa: PLC0415 - the same
    from provision.connections.registry_logins import logins_of  # noqa: PLC0415 - the same

    origin = download.origin
    if isinstance(origin, LocalFile):
        return Pin(file_url(origin.file), _digest_of_file(origin.file, download, inventory))
    if isinstance(origin, ListedFile):
        return Pin(origin.url, digests.listed_digest(origin.sums, download.name, cancel))
    if isinstance(origin, RegistryChart):
        digest = digests.chart_of_registry(origin.address, origin.version, cancel, logins_of(inventory))
        return Pin(f"{origin.address}:{origin.version}", digest)
    url, digest = digests.chart_of_repository(origin.repository, origin.chart, origin.version, cancel)
    stored(url, digest)  # plans compare values with it; it proves the index, too
    return Pin(url, digest)


def _digest_of_file(file: Path, download: Download, inventory: Inventory) -> str:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(
            Diagnostic(
                "FILE_UNREADABLE",
                f"cannot read {file}: {error.strerror}",
                source=inventory.source(download.path),
                remedy="correct the name, or create the file",
            )
        ) from None


def _explained(inventory: Inventory, download: Download, problem: Diagnostic) -> Diagnostic:
    """Return a failed download with what a person can do about it."""
    if problem.code == "DOWNLOAD_WRONG":
        summary = f"the archive of {download.name} does not match its repository's index"
        remedy = f"tell the repository's owner; or declare {download.otherwise}"
        return replace(problem, summary=summary, source=inventory.source(download.path), remedy=remedy)
    if problem.code not in {"DOWNLOAD_FAILED", "DOWNLOAD_REFUSED"}:
        return replace(problem, source=problem.source or inventory.source(download.path))
    source = inventory.source(download.path)
    return replace(
        problem,
        summary=f"the digest of {download.name} cannot be read: {problem.summary}",
        source=source,
        untouched="The lock file was left as it is.",
        remedy=f"run the command where this address can be reached; or declare {download.otherwise}",
    )


def _changed(inventory: Inventory, download: Download, old: Pin, new: Pin) -> Diagnostic:
    file = inventory.file or "INVENTORY"
    return Diagnostic(
        "DIGEST_CHANGED",
        f"the digest of {download.name} has changed: {new.url} is another file now",
        source=inventory.source(download.path),
        evidence=(f"pinned: {old.sha256}", f"now:    {new.sha256}"),
        untouched="The lock file was left as it is.",
        remedy=f"find out why, then accept the new digest: `provision pin {file} --accept`",
    )
