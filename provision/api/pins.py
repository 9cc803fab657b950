"""Pins: the digest of everything that is downloaded, in a lock file beside the inventory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path

from provision.inventory import Inventory
from provision.inventory.lock import LOCK_NAME, Pin, write_lock
from provision.inventory.placeholders import is_placeholder
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Refused, UsageError
from provision.values.suggestions import known_names

Progress = Callable[[str, int, int], None]
"""Receives an image, the bytes read so far, and all bytes (0 where unknown)."""


class Pinned(StrEnum):
    """What was done with an image."""

    NEW = "pinned"
    SAME = "same"
    KEPT = "kept"
    CHANGED = "changed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class PinResult:
    """One image: what was done with it, and its digest."""

    image: str
    outcome: Pinned
    sha256: str = ""


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
    from provision.connections.download import digest_of  # noqa: PLC0415 - slow

    names = tuple(only) or tuple(inventory.images)
    unknown = [name for name in names if name not in inventory.images]
    if unknown:
        summary = f"there is no image {unknown[0]}"
        remedy = known_names(unknown[0], inventory.images)
        raise UsageError(Diagnostic("IMAGE_UNKNOWN", summary, remedy=remedy))
    pins = dict(inventory.lock.images)
    results: list[PinResult] = []
    changed: list[Diagnostic] = []
    for name in names:
        image, held = inventory.images[name], pins.get(name)
        if image.url is None:
            results.append(PinResult(name, Pinned.SKIPPED))
            continue
        declared = None if is_placeholder(image.sha256) else image.sha256
        former = declared or (held.sha256 if held is not None and held.url == image.url else None)
        if former is not None and not (refresh or accept):
            digest = former
        else:
            digest, _ = digest_of(image.url, cancel, partial(progress, name))
        if former is not None and digest != former and (declared is not None or not accept):
            changed.append(_changed(inventory, name, former, digest, declared=declared is not None))
            continue
        new = Pin(image.url, digest)
        results.append(PinResult(name, _outcome(held, new, former), digest))
        pins[name] = new
    if changed:
        raise Refused(changed)
    lock = replace(inventory.lock, images={key: pins[key] for key in pins if key in inventory.images})
    if lock.images != inventory.lock.images:
        write_lock(lock_path(inventory), lock)
    return tuple(results)


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
