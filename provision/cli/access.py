"""Commands that open a way to a host: ssh, trust."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from provision.cli.completion import complete_host, complete_system
from provision.cli.files import InventoryName
from provision.cli.sites import open_site, read_with_lab, settle
from provision.cli.state import Debug, out, usage
from provision.values.cancel import Cancel
from provision.values.fingerprints import is_host_key

if TYPE_CHECKING:
    from provision.connections.contracts import SshEndpoint

ACCEPT = "case $1 in {keys}) echo $2 $3 $4;; esac"
"""Says a host's key back to ssh as known if it is accepted (ssh_config(5), KnownHostsCommand)."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("ssh")(open_shell)
    app.command()(trust)


def open_shell(
    context: typer.Context,
    inventory: InventoryName,
    node: Annotated[
        str,
        typer.Argument(
            metavar="HOST",
            help="A host of the inventory.",
            show_default=False,
            autocompletion=complete_host,
        ),
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="Command to run there; after --.", show_default=False),
    ] = None,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Log in as provision does: its address, user, key, jump host, and the host key that it accepts."""
    from provision.connections.contracts import SshEndpoint  # noqa: PLC0415 - keep --help fast

    found = settle(context, inventory)
    name = node if node == "router" else f"{node}/ssh"
    with closing(open_site(found)) as site:
        systems = [each.removesuffix("/ssh") for each in site.session.systems if not each.endswith("/api")]
        if name not in site.session.systems:
            remedy = f"there are {', '.join(systems)}" if systems else ""
            raise usage("NODE_UNKNOWN", f"{found.file} has no host {node}", remedy)
        endpoint = site.endpoint(name, Cancel())
    if not isinstance(endpoint, SshEndpoint):
        reason = getattr(endpoint, "reason", "it is this machine")
        raise usage("NODE_NOT_REACHED", f"{node} cannot be reached by SSH: {reason}")
    argv = ssh_command(endpoint, command or ())
    sys.stdout.flush()
    os.execvp(argv[0], argv)  # noqa: S606 - ssh takes over the terminal


def trust(
    inventory: InventoryName,
    system: Annotated[
        str,
        typer.Argument(
            metavar="SYSTEM",
            help="HOST/ssh, as the error names it.",
            show_default=False,
            autocompletion=complete_system,
        ),
    ],
    fingerprint: Annotated[
        str,
        typer.Argument(
            metavar="FINGERPRINT", help="SHA256:..., as the host's own console shows it.", show_default=False
        ),
    ],
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Accept an SSH host key of a system from now on, and no other one.

    The host is not asked: compare the fingerprint yourself with the one that the host's own console shows.
    It is written to a file beside the inventory (its name, with .trust). Later connections are held to it.
    Refused where that would change nothing: where `ssh.host_key` of the inventory decides, or a key that
    provision gave.
    """
    from provision.inventory.host_keys import key_place  # noqa: PLC0415 - keep --help fast

    found = read_with_lab(inventory)
    with closing(open_site(found)) as site:
        systems = [each for each in site.environment.systems if not each.endswith("/api")]
        if system not in systems:
            raise usage("SYSTEM_UNKNOWN", f"{found.file} has no {system}", f"there are {', '.join(systems)}")
        place = key_place(found, site.environment.systems[system].subject, system)
        if place.instead and is_host_key(fingerprint):
            summary = f"trust changes nothing for {system}: {place.instead}"
            raise usage("TRUST_WITHOUT_EFFECT", summary, place.accepts(fingerprint))
        try:
            site.trust.accept(system, fingerprint)
        except ValueError as problem:
            raise usage("FINGERPRINT_WRONG", str(problem), "copy it from the error that named it") from None
        except OSError as problem:
            raise usage("FILE_NOT_WRITTEN", f"{problem.filename}: {problem.strerror}") from None
    out().print(f"accepted for {system}: {fingerprint}", soft_wrap=True)
    out().print(f"Written: {site.trust.path}", soft_wrap=True)
    return 0


def ssh_command(endpoint: SshEndpoint, command: Sequence[str] = ()) -> list[str]:
    """Return the command line of OpenSSH's client (8.5 or newer) for an endpoint.

    Args:
        endpoint: how provision reaches the host.
        command: what to run there instead of a shell.
    """
    argv = ["ssh", "-l", endpoint.user]
    if endpoint.port is not None:
        argv += ["-p", str(endpoint.port)]
    if endpoint.key is not None:
        argv += ["-i", str(endpoint.key), "-o", "IdentitiesOnly=yes"]
    if endpoint.jump is not None:
        argv += ["-J", endpoint.jump]
    if endpoint.fingerprints:
        script = ACCEPT.format(keys="|".join(filter(is_host_key, endpoint.fingerprints)) or "none")
        argv += ["-o", f'KnownHostsCommand=/bin/sh -c "{script}" sh %f %H %t %K']
        argv += ["-o", "UserKnownHostsFile=none", "-o", "GlobalKnownHostsFile=none"]
        argv += ["-o", "StrictHostKeyChecking=yes"]
    elif endpoint.known_hosts is not None:
        argv += ["-o", f"UserKnownHostsFile={endpoint.known_hosts}", "-o", "StrictHostKeyChecking=yes"]
    argv += ["--", endpoint.address, *command]
    return argv
