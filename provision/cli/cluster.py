"""Commands about the cluster: kubeconfig, snapshots."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from provision.cli.files import InventoryName
from provision.cli.sites import open_site, settle
from provision.cli.state import Debug, out, say
from provision.values.cancel import Cancel


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(kubeconfig)
    app.command()(snapshots)


def kubeconfig(
    context: typer.Context,
    inventory: InventoryName,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="The kubeconfig; unset, $KUBECONFIG or ~/.kube/config.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="Name of the context; unset, the inventory's.", show_default=False
        ),
    ] = None,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Fetch the kubeconfig of the cluster.

    Puts cluster, user and context into a kubeconfig, and leaves others in it as they are.
    """
    from provision.api.cluster_access import write_kubeconfig  # noqa: PLC0415 - keep --help fast

    declared = settle(context, inventory)
    given = os.environ.get("KUBECONFIG", "").partition(os.pathsep)[0]
    path = out or (Path(given) if given else Path.home() / ".kube" / "config")
    with closing(open_site(declared)) as site:
        label = name or declared.name
        url = write_kubeconfig(site, path, label, Cancel())
    say(f"{path}: context {label} is {url}")
    say(f"Try it: kubectl --kubeconfig {path} --context {label} get nodes")
    return 0


def snapshots(
    context: typer.Context,
    inventory: InventoryName,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """List the etcd snapshots that the servers keep.

    Shows age and size, and changes nothing. A snapshot can be restored only with the token of its time: the
    last column says which one that is.
    Exit code 1 means that a server did not answer.
    """
    from provision.api.cluster_snapshots import kept_snapshots, rows  # noqa: PLC0415 - keep --help fast
    from provision.report.snapshots import print_snapshots  # noqa: PLC0415 - keep --help fast
    from provision.report.style import printable  # noqa: PLC0415 - keep --help fast

    with closing(open_site(settle(context, inventory))) as site:
        kept = kept_snapshots(site, time.time(), Cancel())
    print_snapshots(out(), rows(kept))
    for server in kept:
        if server.problem:
            say(f"{server.server} gave no answer: {printable(server.problem)}")
        elif not server.listing.files:
            say(f"{server.server} has no snapshot.")
    return int(any(server.problem for server in kept))
