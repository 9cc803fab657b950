"""Commands about the cluster: kubeconfig."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from provision.cli.files import InventoryName
from provision.cli.sites import open_site, settle
from provision.cli.state import Debug, say
from provision.values.cancel import Cancel


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(kubeconfig)


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
