"""What a domain downloads besides images, and how its digest is found: `provision pin` asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from provision.inventory.tree import KeyPath


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file on the controller.

    Args:
        file: where it is.
    """

    file: Path


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file whose SHA-256 its vendor publishes beside it, as sha256sum(1) writes it.

    Args:
        url: of the file.
        sums: URL of the list.
        release: a part of the address that any place with the same file has (`/v1.0/`), so that a pin of
            another place counts.
    """

    url: str
    sums: str
    release: str


@dataclass(frozen=True, slots=True)
class RepositoryChart:
    """A chart in a repository, whose index has the digest.

    Args:
        repository: URL of the folder with `index.yaml`.
        chart: its name.
        version: exact version.
    """

    repository: str
    chart: str
    version: str


@dataclass(frozen=True, slots=True)
class RegistryChart:
    """A chart in an OCI registry.

    Args:
        address: `oci://REGISTRY/PATH/CHART`.
        version: exact version, which is its tag.
    """

    address: str
    version: str


@dataclass(frozen=True, slots=True)
class Download:
    """One thing that is pinned.

    Args:
        section: part of the lock file.
        name: under which it is pinned there.
        origin: where it comes from.
        path: keys of the inventory that declare it.
        otherwise: what a person declares where the origin cannot be reached.
        place: where a bundle and a mirror have it, folder by folder.
        values: of a chart, which tell the container images that it names.
        objects: what its role applies besides the chart, which may name images, too.
    """

    section: Literal["binaries", "charts"]
    name: str
    origin: LocalFile | ListedFile | RepositoryChart | RegistryChart
    path: KeyPath
    otherwise: str
    place: tuple[str, ...] = ()
    values: Mapping[str, Any] | None = None
    objects: tuple[Mapping[str, Any], ...] = ()
