"""Container images of a bundle: which ones there are, their digests, and their archives."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from provision.api.pinned_downloads import declared_downloads
from provision.api.pins import lock_path
from provision.contracts.downloads import Download
from provision.hosts.pinned_files import CONTAINERS
from provision.inventory import Inventory
from provision.inventory.lock import Pin, write_lock
from provision.kube.container_images import declared_images, images_of, kubernetes_version, parsed
from provision.kube.names import has_cluster
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError
from provision.values.image_reference import ImageReference

if TYPE_CHECKING:
    from provision.connections.registry_logins import Logins

ARCHITECTURE = "amd64"
"""That of the other files of a bundle, and so of all nodes."""
BLOBS = f"{CONTAINERS}/parts"
"""Folder of what is not an archive yet; gone once all are."""


@dataclass(frozen=True, slots=True)
class Archive:
    """A container image of a bundle.

    Args:
        path: of its archive in the bundle.
        names: by which pods find it.
        sha256: digest of its manifest, or of the index of its platforms, in hex.
        reference: as it is declared.
    """

    path: str
    names: tuple[str, ...]
    sha256: str
    reference: ImageReference

    @property
    def url(self) -> str:
        """Where it comes from."""
        return f"oci://{self.reference.registry}/{self.reference.path}@sha256:{self.sha256}"


def image_archives(
    inventory: Inventory,
    folder: Path,
    helm: Path | None,
    cancel: Cancel,
    note: Callable[[str], None],
    logins: Logins,
) -> tuple[Archive, ...]:
    """Return the container images of an inventory; tags are pinned in the lock file.

    Args:
        inventory: what is declared.
        folder: the bundle, whose charts are there already.
        helm: the program that renders them, or the archive of its release; None where there is none.
        cancel: ends it early.
        note: receives what a person should know.
        logins: which logins of registries there are.

    Raises:
        UsageError: IMAGE_UNFIT: a name is none of an image; or the lock file cannot be written.
        Permanent, Transient: a chart cannot be rendered, or a registry does not answer.
        Interrupted: the run must leave.
    """
    from provision.connections.registry import digest_of_image, repository_of  # noqa: PLC0415 - slow

    if not has_cluster(inventory):
        return ()
    names = [*declared_images(inventory), *_of_charts(inventory, folder, helm, note)]
    references, others = parsed(names)
    if others:
        summary = f"{others[0]!r} is not the name of a container image"
        raise UsageError(Diagnostic("IMAGE_UNFIT", summary, remedy="correct the values that name it"))
    pins = dict(inventory.lock.containers)
    archives: dict[str, Archive] = {}
    for reference in references:
        sha256 = reference.sha256
        if not sha256:
            if reference.name not in pins:
                repository = repository_of(reference, inventory.sources.registries, cancel, logins)
                pins[reference.name] = Pin(f"oci://{reference.name}", digest_of_image(repository, reference))
            sha256 = pins[reference.name].sha256
        place = f"{reference.registry}/{reference.path}".replace("/", "_").replace(":", "_")
        path = f"{CONTAINERS}/{place}_{sha256[:12]}.tar"
        known = archives[path].names if path in archives else ()
        all_names = tuple(dict.fromkeys((*known, *reference.names(sha256))))
        archives[path] = Archive(path, all_names, sha256, reference)
    if pins != inventory.lock.containers:
        write_lock(lock_path(inventory), replace(inventory.lock, containers=pins))
    return tuple(archives.values())


def _of_charts(
    inventory: Inventory, folder: Path, helm: Path | None, note: Callable[[str], None]
) -> Iterator[str]:
    """Yield the images that the charts name, as they are rendered with the values of the inventory."""
    charts = [download for download in declared_downloads(inventory) if download.section == "charts"]
    yield from images_of(body for chart in charts for body in chart.objects)
    if charts and helm is None:
        missing = ", ".join(chart.name for chart in charts)
        note(f"container images of {missing}: not listed, as no helm renders the charts (`--helm FILE`)")
        return
    for chart in charts:
        if helm is not None:
            yield from _of_chart(inventory, folder, helm, chart)


def _of_chart(inventory: Inventory, folder: Path, helm: Path, chart: Download) -> tuple[str, ...]:
    import yaml  # noqa: PLC0415 - slow

    from provision.connections.helm import render  # noqa: PLC0415 - the same

    version = kubernetes_version(inventory)
    text = render(helm, folder.joinpath(*chart.place), chart.name, chart.values or {}, version)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return images_of(yaml.load_all(text, loader))


def fetch_archive(
    archive: Archive,
    folder: Path,
    mirrors: Mapping[str, str],
    cancel: Cancel,
    progress: Callable[[str, int, int], None],
    logins: Logins,
) -> None:
    """Fetch one image and write its archive.

    Raises:
        Permanent, Transient, Interrupted: see `write_image`.
    """
    from provision.connections.registry import repository_of, write_image  # noqa: PLC0415 - slow

    repository = repository_of(archive.reference, mirrors, cancel, logins)
    target = folder / archive.path
    parts = folder / BLOBS
    parts.mkdir(parents=True, exist_ok=True)
    shown = partial(progress, archive.names[0])
    write_image(repository, archive.names, archive.sha256, ARCHITECTURE, parts, target, shown)


def forget_parts(folder: Path) -> None:
    """Remove what is needed only until all archives are complete."""
    shutil.rmtree(folder / BLOBS, ignore_errors=True)
