"""Where the k3s binary and its container images come from; the controller reads them only to send them.

Source: the assets of a k3s release (`k3s`, `k3s-airgap-images-amd64.tar.zst`, `sha256sum-amd64.txt`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from urllib.parse import quote

from provision.connections.download import stored
from provision.contracts.downloads import Download, ListedFile, LocalFile
from provision.contracts.remedy import Blob
from provision.inventory import Inventory
from provision.inventory.models.cluster import K3s
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, UsageError

RELEASES = "https://github.com/k3s-io/k3s/releases/download"
BINARY_ASSET = "k3s"
IMAGES_ASSET = "k3s-airgap-images-amd64.tar.zst"
SUMS_ASSET = "sha256sum-amd64.txt"


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that the controller sends to nodes.

    Args:
        label: what it is, as plans show it.
        asset: its name in a release.
        blob: its digest, and how it is read.
        file: where it is on the controller, if the inventory says so.
    """

    label: str
    asset: str
    blob: Blob
    file: str = ""


def release_url(inventory: Inventory, k3s: K3s, asset: str) -> str:
    """Return the address of an asset: of the release, or of the same folder of the mirror."""
    base = inventory.sources.mirror if inventory.sources.mode == "mirror" else None
    root = f"{base.rstrip('/')}/k3s" if base else RELEASES
    return f"{root}/{quote(k3s.version, safe='')}/{asset}"


def binary(inventory: Inventory) -> Artifact:
    """Return the k3s binary.

    Raises:
        UsageError: BINARY_UNPINNED, DIGEST_CHANGED, or the declared file cannot be read.
    """
    k3s = _k3s(inventory)
    return _artifact(inventory, k3s, BINARY_ASSET, k3s.binary, ("k3s", "binary"), f"k3s {k3s.version}")


def images(inventory: Inventory) -> Artifact | None:
    """Return the archive of k3s's own container images; None where nodes pull them.

    Raises:
        UsageError: BINARY_UNPINNED, DIGEST_CHANGED, or the declared file cannot be read.
    """
    k3s = _k3s(inventory)
    if k3s.images is None and inventory.sources.mode == "online":
        return None
    label = f"images of k3s {k3s.version}"
    return _artifact(inventory, k3s, IMAGES_ASSET, k3s.images, ("k3s", "images"), label)


def downloads(inventory: Inventory) -> Iterator[Download]:
    """Yield what `provision pin` pins: the binary, and the images where nodes do not pull them."""
    k3s = inventory.k3s
    if k3s is None or inventory.cluster.kubeconfig is not None:
        return
    files = [(BINARY_ASSET, k3s.binary, ("k3s", "binary"))]
    if k3s.images is not None or inventory.sources.mode != "online":
        files.append((IMAGES_ASSET, k3s.images, ("k3s", "images")))
    for asset, declared, path in files:
        file = _local(inventory, k3s, asset, declared)
        origin = LocalFile(file) if file is not None else _listed(inventory, k3s, asset)
        otherwise = f"`sources: {{ mode: mirror }}`, or a file on this machine as {'.'.join(path)}"
        yield Download("binaries", asset, origin, path if declared else ("k3s", "version"), otherwise)


def _listed(inventory: Inventory, k3s: K3s, asset: str) -> ListedFile:
    url, sums = (release_url(inventory, k3s, name) for name in (asset, SUMS_ASSET))
    return ListedFile(url, sums, _release(k3s))


def _release(k3s: K3s) -> str:
    return f"/{quote(k3s.version, safe='')}/"


def _local(inventory: Inventory, k3s: K3s, asset: str, declared: Path | None) -> Path | None:
    if declared is None and inventory.sources.mode == "bundle" and inventory.sources.bundle is not None:
        return Path(inventory.sources.bundle) / "k3s" / k3s.version / asset
    return declared


def _k3s(inventory: Inventory) -> K3s:
    if inventory.k3s is None:
        raise ValueError("the inventory declares no k3s")
    return inventory.k3s


def _artifact(
    inventory: Inventory, k3s: K3s, asset: str, declared: Path | None, path: tuple[str, ...], label: str
) -> Artifact:
    file = _local(inventory, k3s, asset, declared)
    if file is not None:
        digest = _digest_of_file(inventory, file, path)
        change = inventory.lock.change_of("binaries", asset, file, digest)
        if change is not None:
            raise UsageError(replace(change, source=inventory.source(path)))
        return Artifact(label, asset, Blob(digest, read=partial(_read, file, digest)), str(file))
    url = release_url(inventory, k3s, asset)
    pin = inventory.lock.binaries.get(asset)
    # A mirror gives the same files: only the release decides whether a pin is still of use.
    if pin is None or _release(k3s) not in pin.url:
        raise UsageError(
            Diagnostic(
                "BINARY_UNPINNED",
                f"the digest of {asset} of k3s {k3s.version} is not known: what is downloaded must be pinned",
                source=inventory.source(("k3s", "version")),
                remedy=f"pin it: `provision pin {inventory.file or 'INVENTORY'}`, or declare k3s.binary",
            )
        )
    return Artifact(label, asset, Blob(pin.sha256, read=partial(stored, url, pin.sha256)))


def _digest_of_file(inventory: Inventory, file: Path, path: tuple[str, ...]) -> str:
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
    """Return the digest of a file, once for each size and time of change."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read(file: Path, sha256: str) -> bytes:
    """Return the content of a file on the controller.

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
