"""Commands that pin downloads: pin, image pin."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from provision.cli.completion import complete_image
from provision.cli.files import InventoryName
from provision.cli.interrupts import interrupts
from provision.cli.sites import read
from provision.cli.state import Debug, out
from provision.values.cancel import Cancel

if TYPE_CHECKING:
    from provision.api.pins import PinResult

Refresh = Annotated[
    bool, typer.Option("--refresh", help="Download also what is pinned already, and compare.")
]
Accept = Annotated[bool, typer.Option("--accept", help="As --refresh, and take digests that have changed.")]
EVERY = 10.0
"""Seconds between two lines about one download."""
MIB = 1024 * 1024


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(pin)
    group = typer.Typer(help="Images.", no_args_is_help=True, rich_markup_mode=None)
    group.callback()(_images)
    group.command("pin")(pin_image)
    app.add_typer(group, name="image")


def _images() -> None:
    """Cloud images that machines start from."""


def pin(
    inventory: InventoryName,
    refresh: Refresh = False,
    accept: Accept = False,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Write URL and SHA-256 of every image to provision.lock.yaml, beside the inventory.

    What has a digest already is not downloaded again. A digest that has changed is refused (exit 4), and the
    file is left as it was. Downloads are read through, not kept, with certificate checks.
    """
    return _pin(inventory, (), refresh=refresh, accept=accept)


def pin_image(
    inventory: InventoryName,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The image.", show_default=False, autocompletion=complete_image),
    ],
    refresh: Refresh = False,
    accept: Accept = False,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Write URL and SHA-256 of one image to provision.lock.yaml, as `provision pin` does for all."""
    return _pin(inventory, (name,), refresh=refresh, accept=accept)


def _pin(inventory: str, only: tuple[str, ...], *, refresh: bool, accept: bool) -> int:
    from provision.api.pins import lock_path, pin_images  # noqa: PLC0415 - keep --help fast

    found = read(inventory)
    cancel = Cancel()
    told: dict[str, float] = {}

    def progress(image: str, done: int, size: int) -> None:
        now = time.monotonic()
        if now - told.setdefault(image, now) >= EVERY:
            told[image] = now
            of = f" of {size // MIB}" if size else ""
            print(f"{image}: {done // MIB}{of} MiB", file=sys.stderr, flush=True)

    with interrupts(cancel, lambda text: print(text, file=sys.stderr)):
        results = pin_images(found, cancel, only=only, refresh=refresh, accept=accept, progress=progress)
    for each in results:
        out().print(_line(each), soft_wrap=True, highlight=False, markup=False)
    if any(each.sha256 for each in results):
        out().print(f"Written: {lock_path(found)}", soft_wrap=True)
    return 0


def _line(result: PinResult) -> str:
    from provision.api.pins import Pinned  # noqa: PLC0415 - keep --help fast

    words = {
        Pinned.NEW: "pinned",
        Pinned.SAME: "pinned already",
        Pinned.KEPT: "as the inventory says",
        Pinned.CHANGED: "pinned anew",
        Pinned.SKIPPED: "has no URL, nothing is downloaded",
    }
    return f"{result.image}: {words[result.outcome]} {result.sha256}".rstrip()
