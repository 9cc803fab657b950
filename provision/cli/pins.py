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
from provision.cli.state import Debug, say
from provision.values.cancel import Cancel

if TYPE_CHECKING:
    from provision.api.pins import PinResult

Refresh = Annotated[
    bool, typer.Option("--refresh", help="Download again what is pinned already, and compare.")
]
Accept = Annotated[bool, typer.Option("--accept", help="As --refresh, and accept digests that have changed.")]
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
    """Write the digests of all downloads to provision.lock.yaml.

    The file is beside the inventory and holds URL and SHA-256. Images are read once and not kept. Digests of
    binaries and charts are those that their vendors publish: a list of sums beside the release or its mirror,
    the index of a chart repository, the manifest of a registry; archives of charts are kept in the cache of
    this machine. A file of this machine is read. What has a digest already is not looked at again. If a
    digest has changed, the command is refused (exit 4) and the file stays as it was. Certificates are
    checked.
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
    """Write the digest of one image to provision.lock.yaml.

    Does for one image what `provision pin` does for all images.
    """
    return _pin(inventory, (name,), refresh=refresh, accept=accept)


def _pin(inventory: str, only: tuple[str, ...], *, refresh: bool, accept: bool) -> int:
    from provision.api.pins import lock_path, pin_all, pin_images  # noqa: PLC0415 - keep --help fast

    declared = read(inventory)
    cancel = Cancel()
    printed: dict[str, float] = {}

    def progress(image: str, received: int, size: int) -> None:
        now = time.monotonic()
        if now - printed.setdefault(image, now) >= EVERY:
            printed[image] = now
            of = f" of {size // MIB}" if size else ""
            print(f"{image}: {received // MIB}{of} MiB", file=sys.stderr, flush=True)

    with interrupts(cancel, lambda text: print(text, file=sys.stderr)):
        if only:
            results = pin_images(
                declared, cancel, only=only, refresh=refresh, accept=accept, progress=progress
            )
        else:
            results = pin_all(declared, cancel, refresh=refresh, accept=accept, progress=progress)
    for result in results:
        say(_line(result))
    if any(result.sha256 for result in results):
        say(f"Written: {lock_path(declared)}")
    return 0


def _line(result: PinResult) -> str:
    from provision.api.pins import Pinned  # noqa: PLC0415 - keep --help fast

    words = {
        Pinned.NEW: "pinned",
        Pinned.SAME: "already pinned",
        Pinned.KEPT: "pinned by the inventory",
        Pinned.CHANGED: "pinned again",
        Pinned.SKIPPED: "has no URL, so nothing is downloaded",
    }
    return f"{result.name}: {words[result.outcome]} {result.sha256}".rstrip()
