"""The command that says what is wrong, and what helps."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from provision.cli.completion import complete_inventory
from provision.cli.options import Target, run_options
from provision.cli.sites import open_site, settle
from provision.cli.state import Debug, out, say
from provision.cli.watch import shown_progress, watched
from provision.values.cancel import Cancel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.connections.contracts import ShellConnection, SshEndpoint
    from provision.values.diagnostics import Diagnostic

_HOST = re.compile(r"(?P<user>[^@\s/]+)@(?P<host>[^@:\s/]+)(?::(?P<port>[0-9]{1,5}))?")


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(doctor)


def doctor(
    context: typer.Context,
    subject: Annotated[
        str,
        typer.Argument(
            metavar="INVENTORY|USER@HOST",
            help="An inventory, or a host that needs none, with :PORT if SSH does not use port 22.",
            autocompletion=complete_inventory,
            show_default=False,
        ),
    ],
    target: Target = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="Private key for the login at a host.")
    ] = None,
    host_key: Annotated[
        str | None, typer.Option("--host-key", metavar="SHA256:...", help="The SSH host key to accept.")
    ] = None,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Say what is wrong with a site or a host, and what helps. Changes nothing.

    Of an inventory it runs all preflight rules, names systems that do not answer, and examines each host. Of
    a host it needs only the login. Exit code 4 if there is an error, 0 if there are only warnings and notes.
    """
    from provision.api.doctor import doctor_code, examine  # noqa: PLC0415 - keep --help fast

    match = _HOST.fullmatch(subject)
    if match is not None:
        port = int(match["port"]) if match["port"] else None
        result = _host(match["user"], match["host"], port, key, host_key)
    else:
        declared = settle(context, subject)
        with (
            closing(open_site(declared)) as site,
            watched(context, site, errors=True) as (_, emit, cancel),
        ):
            emit.hides_problems = True  # they are shown below
            result = examine(site, run_options(target, None, None), emit, cancel)
    _print(result)
    return int(doctor_code(result))


def connect(endpoint: SshEndpoint) -> ShellConnection:
    """Return a connection that opens when it is first used."""
    from provision.connections.ssh import SshConnection  # noqa: PLC0415 - keep --help fast

    return SshConnection(endpoint)


def _host(
    user: str, host: str, port: int | None, key: Path | None, host_key: str | None
) -> tuple[Diagnostic, ...]:
    from provision.api.doctor import examine_host  # noqa: PLC0415 - keep --help fast
    from provision.connections.contracts import SshEndpoint  # noqa: PLC0415 - keep --help fast

    accepted = (host_key,) if host_key else ()
    file = key.expanduser() if key is not None else None
    endpoint = SshEndpoint(host, user, port, file, fingerprints=accepted)
    # A busy host may take two minutes: the progress says who is awaited. Ctrl-C ends it at once.
    with closing(connect(endpoint)) as connection, shown_progress(lambda: (host,), errors=True):
        return examine_host(connection, host, Cancel())


def _print(diagnostics: Sequence[Diagnostic]) -> None:
    from provision.report.problems import print_diagnostics  # noqa: PLC0415 - keep --help fast
    from provision.report.style import count  # noqa: PLC0415 - keep --help fast
    from provision.values.diagnostics import Severity  # noqa: PLC0415 - keep --help fast

    print_diagnostics(out(), diagnostics, full=True)
    numbers = {
        severity: sum(diagnostic.severity is severity for diagnostic in diagnostics) for severity in Severity
    }
    parts = [count(number, str(severity)) for severity, number in numbers.items() if number]
    say(f"Found: {', '.join(parts)}." if parts else "Nothing is wrong.")
