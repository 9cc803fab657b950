"""Where the k3s binary and its container images come from; the controller reads them only to send them.

Source: the assets of a k3s release (`k3s`, `k3s-airgap-images-amd64.tar.zst`, `sha256sum-amd64.txt`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote

from provision.contracts.downloads import Download, ListedFile, LocalFile
from provision.contracts.remedy import Blob
from provision.hosts.pinned_files import Wanted, bundle_file, bundled_images, mapped, mirror_url, pinned_blob
from provision.inventory import Inventory
from provision.inventory.models.cluster import K3s

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
    return mirror_url(inventory, *_place(k3s, asset)) or f"{RELEASES}{_release(k3s)}{asset}"


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


def container_images(inventory: Inventory) -> tuple[Artifact, ...]:
    """Return the archives of a bundle with the images that pods run; none where nodes pull them.

    Raises:
        UsageError: BUNDLE_UNREADABLE, BUNDLE_CHANGED, or a file of the bundle cannot be read.
    """
    return tuple(
        Artifact(
            f"image {row.images[0]}",
            row.file.name,
            Blob(row.sha256, read=partial(mapped, row.file)),
            str(row.file),
        )
        for row in bundled_images(inventory)
    )


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
        keys = path if declared else ("k3s", "version")
        yield Download("binaries", asset, origin, keys, otherwise, _place(k3s, asset))


def _listed(inventory: Inventory, k3s: K3s, asset: str) -> ListedFile:
    url, sums = (release_url(inventory, k3s, name) for name in (asset, SUMS_ASSET))
    return ListedFile(url, sums, _release(k3s))


def _release(k3s: K3s) -> str:
    return f"/{quote(k3s.version, safe='')}/"


def _local(inventory: Inventory, k3s: K3s, asset: str, declared: Path | None) -> Path | None:
    return declared or bundle_file(inventory, *_place(k3s, asset))


def _place(k3s: K3s, asset: str) -> tuple[str, ...]:
    """Return where a bundle and a mirror have an asset."""
    return ("k3s", k3s.version, asset)


def _k3s(inventory: Inventory) -> K3s:
    if inventory.k3s is None:
        raise ValueError("the inventory declares no k3s")
    return inventory.k3s


def _artifact(
    inventory: Inventory, k3s: K3s, asset: str, declared: Path | None, path: tuple[str, ...], label: str
) -> Artifact:
    file = _local(inventory, k3s, asset, declared)
    # A mirror gives the same files: only the release decides whether a pin is still of use.
    download = Wanted(
        "binaries",
        asset,
        f"{asset} of k3s {k3s.version}",
        file,
        release_url(inventory, k3s, asset),
        _release(k3s),
        path if file is not None else ("k3s", "version"),
        "k3s.binary",
    )
    return Artifact(label, asset, pinned_blob(inventory, download), str(file or ""))
