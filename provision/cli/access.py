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
from provision.cli.state import Debug, say, usage
from provision.values.cancel import Cancel
from provision.values.fingerprints import is_host_key
from provision.values.suggestions import known_names

if TYPE_CHECKING:
    from provision.connections.contracts import SshEndpoint

ACCEPT = "case $1 in {keys}) echo $2 $3 $4;; esac"
"""Prints the key of a host back to ssh as known if it is accepted (ssh_config(5), KnownHostsCommand)."""


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
        typer.Argument(metavar="COMMAND", help="A command to run there, after --.", show_default=False),
    ] = None,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Log in to a host in the same way as provision.

    Uses the same address, user, key, jump host and accepted host key.
    """
    from provision.connections.contracts import SshEndpoint  # noqa: PLC0415 - keep --help fast

    declared = settle(context, inventory)
    with closing(open_site(declared)) as site:
        # A system is called HOST/ssh, or by the host's name alone where it has only one.
        hosts = {
            name.removesuffix("/ssh"): name for name in site.session.systems if not name.endswith("/api")
        }
        if node not in hosts:
            raise usage("NODE_UNKNOWN", f"{declared.file} has no host {node}", known_names(node, hosts))
        endpoint = site.endpoint(hosts[node], Cancel())
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
            metavar="FINGERPRINT", help="SHA256:..., as the console of the host shows it.", show_default=False
        ),
    ],
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Accept the SSH host key of a system, and no other key.

    The host is not asked. Compare the fingerprint yourself with the one that the console of the host shows.
    It is written to a file beside the inventory, with the ending .trust. Later connections accept only this
    key. The command is refused where the key is decided elsewhere: by `ssh.host_key` in the inventory, or by
    what provision keeps with a machine that it created.
    """
    from provision.inventory.host_keys import key_place  # noqa: PLC0415 - keep --help fast

    declared = read_with_lab(inventory)
    with closing(open_site(declared)) as site:
        systems = [name for name in site.environment.systems if not name.endswith("/api")]
        if system not in systems:
            raise usage("SYSTEM_UNKNOWN", f"{declared.file} has no {system}", known_names(system, systems))
        place = key_place(declared, site.environment.systems[system].subject, system)
        if place.instead and is_host_key(fingerprint):
            summary = f"trust changes nothing for {system}: {place.instead}"
            raise usage("TRUST_WITHOUT_EFFECT", summary, place.accepts(fingerprint))
        try:
            site.trust.accept(system, fingerprint)
        except ValueError as problem:
            remedy = "copy the fingerprint from the message that names it"
            raise usage("FINGERPRINT_WRONG", str(problem), remedy) from None
        except OSError as problem:
            raise usage("FILE_NOT_WRITTEN", f"{problem.filename}: {problem.strerror}") from None
    say(f"Accepted for {system}: {fingerprint}")
    say(f"Written: {site.trust.path}")
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
