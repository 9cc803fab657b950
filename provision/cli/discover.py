"""The command that writes what is on a Proxmox VE host as an inventory."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from provision.cli.bootstrap import (
    NAME,
    HostKey,
    NewInventory,
    ProxmoxLogin,
    TokenFile,
    address_of,
    target_of,
)
from provision.cli.files import write_file
from provision.cli.state import Debug, say, usage
from provision.values.cancel import Cancel

if TYPE_CHECKING:
    from provision.connections.contracts import ShellConnection, SshEndpoint


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(discover)


def discover(
    target: ProxmoxLogin,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Name of the inventory, as for bootstrap.")
    ] = "site",
    output: NewInventory = None,
    key: Annotated[Path, typer.Option("--key", metavar="FILE", help="Private key for the login.")] = Path(
        "~/.ssh/id_ed25519"
    ),
    host_key: HostKey = None,
    token_file: TokenFile = None,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Write what is on a Proxmox VE host as an inventory. Changes nothing on the host.

    The inventory has the host with its storages, bridge and cards, and each VM as it is. A plan of it shows
    no change, because host and VMs have `manage: false`. To manage the VMs, remove that from their profile
    and take them over with `provision import NAME.yaml --all`.
    """
    from provision.api.discover import discover as look  # noqa: PLC0415 - keep --help fast
    from provision.connections.contracts import SshEndpoint  # noqa: PLC0415 - keep --help fast
    from provision.proxmox.first_inventory import Trusted  # noqa: PLC0415 - keep --help fast

    host, port = target_of(target)
    if NAME.fullmatch(name) is None:
        summary = f"{name!r} cannot be a name: use lower-case letters, digits and hyphens"
        raise usage("NAME_WRONG", summary)
    file = output or Path(f"{name}.yaml")
    if file.exists():
        raise usage("FILE_EXISTS", f"{file} exists and is not overwritten", "name another file with --out")
    accepted = (host_key,) if host_key else ()
    private = key.expanduser()
    login_key = private if private.exists() else None  # otherwise ssh's own keys
    endpoint = SshEndpoint(host, "root", port, login_key, fingerprints=accepted)
    secret = token_file or Path("~/.config/provision") / f"{name}.token"
    login = Trusted(address_of(endpoint), port, "", "", key, "", secret)
    with closing(connect(endpoint)) as connection:
        result = look(connection, name, login, Cancel())
    write_file(file, result.text)
    nodes = [vm for vm in result.vms if vm.is_complete]
    say(f"{result.node} has {len(result.vms)} VMs; {len(nodes)} of them are nodes of the inventory.")
    if len(nodes) < len(result.vms):
        say("The others are comments that say what they lack.")
    say(f"Written: {file}")
    if not result.has_token:
        bootstrap = f"provision bootstrap {target} --name {name} --out access.yaml"
        say(f"The token of its web API does not exist yet; make it: `{bootstrap}`")
    say(f"Next: `provision plan {file}`")
    return 0


def connect(endpoint: SshEndpoint) -> ShellConnection:
    """Return a connection that opens when it is first used."""
    from provision.connections.ssh import SshConnection  # noqa: PLC0415 - keep --help fast

    return SshConnection(endpoint)
