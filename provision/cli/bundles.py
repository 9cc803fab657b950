"""The command that fetches everything for a site without internet: bundle."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from provision.cli.files import InventoryName
from provision.cli.interrupts import interrupts
from provision.cli.sites import read
from provision.cli.state import Debug, say
from provision.values.cancel import Cancel

EVERY = 10.0
"""Seconds between two lines about one download."""
MIB = 1024 * 1024


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(bundle)


def bundle(
    inventory: InventoryName,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The bundle; made if it is missing.", show_default=False)
    ],
    archive: Annotated[
        Path | None, typer.Option("--archive", metavar="FILE", help="Also write it as one tar file.")
    ] = None,
    helm: Annotated[
        Path | None,
        typer.Option(
            "--helm", metavar="FILE", help="The program helm, which renders charts to find their images."
        ),
    ] = None,
    installed: Annotated[
        Path | None,
        typer.Option(
            "--installed",
            metavar="FOLDER",
            help="Files /var/lib/dpkg/status of nodes, by name: what must be upgraded there comes, too.",
        ),
    ] = None,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Fetch everything that an inventory downloads into a folder.

    Cloud images, the cluster's program with its container images, the program helm, and charts: each is
    checked against its digest in provision.lock.yaml, and what is not pinned yet is pinned. `manifest.json`
    lists the files. What is there already is not fetched again, and a download that was cut goes on. Use the
    folder, or the tar file, with `sources: { mode: bundle, bundle: FOLDER }`; served by a web server, it is
    a mirror. Container images are those of `verify.images`, of `sources.images`, and those that rendered
    charts name; the last need `--helm`, or helm declared in the inventory. Packages that roles install
    on nodes, with all that they need, come from the distributions' archives, verified by apt of this machine.
    """
    from provision.api.bundle import make_bundle, pack  # noqa: PLC0415 - keep --help fast

    declared = read(inventory)
    cancel = Cancel()
    printed: dict[str, float] = {}

    def progress(name: str, received: int, size: int) -> None:
        now = time.monotonic()
        if now - printed.setdefault(name, now) >= EVERY:
            printed[name] = now
            of = f" of {size // MIB}" if size else ""
            print(f"{name}: {received // MIB}{of} MiB", file=sys.stderr, flush=True)

    with interrupts(cancel, lambda text: print(text, file=sys.stderr)):
        results = make_bundle(
            declared,
            folder,
            cancel,
            progress=progress,
            helm=helm,
            note=lambda text: print(text, file=sys.stderr),
            installed=installed,
        )
        for result in results:
            say(f"{result.path}: {'fetched' if result.is_new else 'already there'} {result.sha256}")
        if archive is not None:
            pack(folder, archive)
            say(f"Written: {archive}")
    say(f"Bundle: {folder} ({len(results)} files)")
    return 0
