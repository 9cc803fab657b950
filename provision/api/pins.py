"""Pins: the digest of everything that is downloaded, in a lock file beside the inventory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path

from provision.api.pinned_downloads import declared_downloads, pin_of
from provision.inventory import Inventory
from provision.inventory.check_images import unpinned
from provision.inventory.lock import LOCK_NAME, Lock, Pin, write_lock
from provision.inventory.placeholders import is_placeholder
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Refused, UsageError
from provision.values.suggestions import known_names

Progress = Callable[[str, int, int], None]
"""Receives the name of an image, the bytes read so far, and all bytes (0 where unknown)."""


class Pinned(StrEnum):
    """What was done with a download."""

    NEW = "pinned"
    SAME = "same"
    KEPT = "kept"
    CHANGED = "changed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class PinResult:
    """One download: what was done with it, and its digest."""

    name: str
    outcome: Pinned
    sha256: str = ""


def pin_all(
    inventory: Inventory,
    cancel: Cancel,
    *,
    refresh: bool = False,
    accept: bool = False,
    progress: Progress = lambda _image, _read, _all: None,
) -> tuple[PinResult, ...]:
    """Write URL and digest of all that is downloaded to the lock file: images, binaries, charts.

    Container images of checks that have a placeholder for their digest get what their registry has now.

    Images are downloaded once. Digests of the rest are taken from where their vendors publish them.

    Args:
        inventory: what it declares.
        cancel: ends it early.
        refresh: look also at what is pinned, and compare.
        accept: as `refresh`, and take digests that have changed.
        progress: receives how far a download is.

    Raises:
        Refused: a digest has changed and `accept` was not given; the lock file is as it was.
        Permanent, Transient: a download failed; the lock file is as it was.
        UsageError: a file of this machine cannot be read; the lock file is as it was.
    """
    former = Former(inventory, refresh=refresh, accept=accept)
    pins = _images(former, cancel, tuple(inventory.images), progress)
    other: dict[str, dict[str, Pin]] = {
        "binaries": dict(inventory.lock.binaries),
        "charts": dict(inventory.lock.charts),
    }
    for download in declared_downloads(inventory):
        held = other[download.section].get(download.name)
        pin = pin_of(former, download, held, cancel)
        if pin is not None:
            other[download.section][download.name] = pin
    containers = _containers(former, cancel)
    sections = {"binaries": other["binaries"], "charts": other["charts"], "containers": containers}
    former.end(Lock(inventory.lock.file, pins, **sections))
    return tuple(former.results)


def pin_images(
    inventory: Inventory,
    cancel: Cancel,
    *,
    only: Iterable[str] = (),
    refresh: bool = False,
    accept: bool = False,
    progress: Progress = lambda _image, _read, _all: None,
) -> tuple[PinResult, ...]:
    """Write URL and digest of images to the lock file; images that are pinned are not downloaded again.

    A digest that the inventory itself declares is taken from there; the host that downloads it checks it.

    Args:
        inventory: whose images.
        cancel: ends it early.
        only: names of images; all if empty.
        refresh: download also what is pinned, and compare.
        accept: as `refresh`, and take digests that have changed.
        progress: receives how far a download is.

    Raises:
        UsageError: there is no such image.
        Refused: a digest has changed and `accept` was not given; the lock file is as it was.
        Permanent, Transient: a download failed; the lock file is as it was.
    """
    names = tuple(only) or tuple(inventory.images)
    unknown = [name for name in names if name not in inventory.images]
    if unknown:
        summary = f"there is no image {unknown[0]}"
        remedy = known_names(unknown[0], inventory.images)
        raise UsageError(Diagnostic("IMAGE_UNKNOWN", summary, remedy=remedy))
    former = Former(inventory, refresh=refresh, accept=accept)
    former.end(replace(inventory.lock, images=_images(former, cancel, names, progress)))
    return tuple(former.results)


class Former:
    """What was pinned before, beside what there is now.

    Args:
        inventory: what is declared.
        refresh: whether what is pinned is looked at.
        accept: whether digests that have changed are taken.
    """

    def __init__(self, inventory: Inventory, *, refresh: bool, accept: bool) -> None:
        self.inventory, self.accept = inventory, accept
        self.looks = refresh or accept
        self.results: list[PinResult] = []
        self._changed: list[Diagnostic] = []

    def take(self, name: str, held: Pin | None, new: Pin, known: str | None) -> Pin:
        """Return a pin, and keep what was done.

        Args:
            name: of what is pinned.
            held: its pin in the lock file.
            new: its pin now.
            known: its digest as it was known before.
        """
        self.results.append(PinResult(name, _outcome(held, new, known), new.sha256))
        return new

    def refuse(self, problem: Diagnostic) -> None:
        """Keep that a digest has changed: all of them are reported at once."""
        self._changed.append(problem)

    def end(self, lock: Lock) -> None:
        """Write the lock file, if anything in it is another.

        Raises:
            Refused: a digest has changed.
        """
        if self._changed:
            raise Refused(self._changed)
        before = self.inventory.lock
        if replace(lock, file=before.file) != before:
            write_lock(lock_path(self.inventory), lock)


def _images(former: Former, cancel: Cancel, names: Iterable[str], progress: Progress) -> dict[str, Pin]:
    """Return the pins of all images, some of them looked at."""
    from provision.connections.download import digest_of  # noqa: PLC0415 - slow

    inventory = former.inventory
    pins = dict(inventory.lock.images)
    for name in names:
        image, held = inventory.images[name], pins.get(name)
        if image.url is None:
            former.results.append(PinResult(name, Pinned.SKIPPED))
            continue
        declared = None if is_placeholder(image.sha256) else image.sha256
        known = declared or (held.sha256 if held is not None and held.url == image.url else None)
        if known is not None and not former.looks:
            digest = known
        else:
            digest, _ = digest_of(image.url, cancel, partial(progress, name))
        if known is not None and digest != known and (declared is not None or not former.accept):
            former.refuse(_changed(inventory, name, known, digest, declared=declared is not None))
            continue
        pins[name] = former.take(name, held, Pin(image.url, digest), known)
    return {key: pins[key] for key in pins if key in inventory.images}


def _containers(former: Former, cancel: Cancel) -> dict[str, Pin]:
    """Return the pins of container images, those of checks looked up in their registries."""
    from provision.connections.registry import digest_of_image, repository_of  # noqa: PLC0415 - slow
    from provision.connections.registry_logins import logins_of  # noqa: PLC0415 - the same

    inventory = former.inventory
    logins = logins_of(inventory)
    pins = dict(inventory.lock.containers)
    for purpose, reference in unpinned(inventory):
        name, held = reference.name, pins.get(reference.name)
        digest = held.sha256 if held is not None else ""
        if held is None or former.looks:
            repository = repository_of(reference, inventory.sources.registries, cancel, logins)
            digest = digest_of_image(repository, reference)
        if held is not None and digest != held.sha256 and not former.accept:
            summary = f"the digest of {name} has changed: its tag now gives another image"
            rows = (f"pinned: {held.sha256}", f"now:    {digest}")
            source = inventory.source(("verify", "images", purpose))
            remedy = f"find out why, then take it: `provision pin {inventory.file or 'INVENTORY'} --accept`"
            untouched = "The lock file was left as it is."
            problem = Diagnostic(
                "DIGEST_CHANGED", summary, evidence=rows, source=source, untouched=untouched, remedy=remedy
            )
            former.refuse(problem)
            continue
        pin = Pin(f"oci://{name}", digest)
        pins[name] = former.take(name, held, pin, held.sha256 if held is not None else None)
    return pins


def lock_path(inventory: Inventory) -> Path:
    """Return the lock file that belongs to an inventory."""
    return Path(inventory.file).parent / LOCK_NAME


def _outcome(held: Pin | None, new: Pin, known: str | None) -> Pinned:
    if held == new:
        return Pinned.SAME
    if known is None:
        return Pinned.NEW
    return Pinned.KEPT if known == new.sha256 else Pinned.CHANGED


def _changed(inventory: Inventory, name: str, old: str, new: str, *, declared: bool) -> Diagnostic:
    file = inventory.file or "INVENTORY"
    return Diagnostic(
        "DIGEST_CHANGED",
        f"the digest of image {name} has changed: its URL now gives another file",
        source=inventory.source(("images", name)),
        evidence=(f"pinned: {old}", f"now:    {new}"),
        untouched="The lock file was left as it is.",
        remedy="find out why, then correct the digest in the inventory"
        if declared
        else f"find out why, then accept the new digest: `provision image pin {file} {name} --accept`",
    )
