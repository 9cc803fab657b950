"""The program helm: which release is declared, and where it comes from.

Source: helm.sh (Installing Helm): `https://get.helm.sh/helm-VERSION-OS-ARCH.tar.gz`, `.sha256sum` beside it.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator

from provision.contracts.downloads import Download, ListedFile, LocalFile
from provision.contracts.remedy import Blob
from provision.hosts.pinned_files import Wanted, bundle_file, mirror_url, pinned_blob
from provision.inventory import Inventory
from provision.kube.names import has_cluster

RELEASES = "https://get.helm.sh"
_PATH = ("cluster", "helm")
_PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}


def uses_program(inventory: Inventory) -> bool:
    """Whether charts are installed by the program."""
    return inventory.cluster.helm.backend == "cli"


def program(inventory: Inventory) -> Blob:
    """Return the declared program, or the archive of its release.

    Raises:
        UsageError: BINARY_UNPINNED, DIGEST_CHANGED, or the declared file cannot be read.
    """
    helm = inventory.cluster.helm
    asset = _asset(helm.version)
    file = helm.binary.expanduser() if helm.binary is not None else bundle_file(inventory, "helm", asset)
    return pinned_blob(
        inventory,
        Wanted(
            "binaries",
            "helm" if helm.binary is not None else asset,
            f"helm {helm.version or ''}".strip(),
            file,
            mirror_url(inventory, "helm", asset) or f"{RELEASES}/{asset}",
            f"/{asset}",
            (*_PATH, "binary" if helm.binary is not None else "version"),
            "cluster.helm.binary",
        ),
    )


def downloads(inventory: Inventory) -> Iterator[Download]:
    """Yield the program, which `provision pin` pins."""
    helm = inventory.cluster.helm
    if not uses_program(inventory) or not has_cluster(inventory):
        return
    otherwise = "the program on this machine as cluster.helm.binary"
    if helm.binary is not None:
        origin = LocalFile(helm.binary.expanduser())
        yield Download("binaries", "helm", origin, (*_PATH, "binary"), otherwise, ("helm", helm.binary.name))
        return
    asset = _asset(helm.version)
    file = bundle_file(inventory, "helm", asset)
    if file is not None:
        yield Download("binaries", asset, LocalFile(file), (*_PATH, "version"), otherwise, ("helm", asset))
    else:
        url = mirror_url(inventory, "helm", asset) or f"{RELEASES}/{asset}"
        listed = ListedFile(url, f"{url}.sha256sum", f"/{asset}")
        yield Download("binaries", asset, listed, (*_PATH, "version"), otherwise, ("helm", asset))


def _asset(version: str | None) -> str:
    processor = platform.machine()
    return f"helm-{version}-{platform.system().lower()}-{_PROCESSORS.get(processor, processor)}.tar.gz"
