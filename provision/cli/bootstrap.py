"""The command that sets up access to a Proxmox VE host."""

from __future__ import annotations

import getpass
import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from provision.cli.files import write_file
from provision.cli.state import Debug, on_terminal, say, state, usage
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, Refused
from provision.values.redaction import Redactor

if TYPE_CHECKING:
    from provision.connections.contracts import ShellConnection, SshEndpoint
    from provision.proxmox.setup import ProxmoxHost, StorageChoice

TARGET = re.compile(r"(?P<user>[^@\s]+)@(?P<host>[^@:\s\[\]]+)(?::(?P<port>[0-9]+))?")
NAME = re.compile(r"[a-z][a-z0-9-]*")
API_PORT = 8006
LOGIN_REFUSED = frozenset({"SSH_AUTH_FAILED", "SSH_KEY_UNREADABLE"})

ProxmoxLogin = Annotated[
    str, typer.Argument(metavar="root@HOST", help="The host, with :PORT if SSH does not use port 22.")
]
NewInventory = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="The inventory to write.", show_default="NAME.yaml"),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="File for the secret of the token that bootstrap makes.",
        show_default="~/.config/provision/NAME.token",
    ),
]
HostKey = Annotated[
    str | None, typer.Option("--host-key", metavar="SHA256:...", help="The SSH host key to accept.")
]


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(bootstrap)


def bootstrap(
    context: typer.Context,
    target: ProxmoxLogin,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Name of the inventory and of the token.")
    ] = "site",
    output: NewInventory = None,
    key: Annotated[
        Path,
        typer.Option("--key", metavar="FILE", help="Private key for the login; its .pub is installed."),
    ] = Path("~/.ssh/id_ed25519"),
    token_file: TokenFile = None,
    host_key: HostKey = None,
    certificate: Annotated[
        str | None, typer.Option("--certificate", metavar="AA:BB:...", help="The certificate to accept.")
    ] = None,
    enable_content: Annotated[
        bool,
        typer.Option("--enable-content", help="Enable missing content types without asking."),
    ] = False,
    rotate: Annotated[bool, typer.Option("--rotate", help="Make a new secret for the token.")] = False,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Set up access to a Proxmox VE host.

    Creates a role, a user and a token, and writes a first inventory. Shows the fingerprints of SSH and
    certificate for one confirmation (without a terminal, give both as options). Logs in by key, or asks for
    the password once, and installs the public key. The role has only the privileges that provision needs,
    the user has no password, and the token is privilege-separated. You can run the command again at any
    time: it continues with what exists.
    """
    from provision.api.bootstrap import look, run_grant  # noqa: PLC0415 - keep --help fast
    from provision.connections.contracts import SshEndpoint  # noqa: PLC0415 - keep --help fast
    from provision.proxmox.first_inventory import Trusted, first_inventory  # noqa: PLC0415 - keep --help fast
    from provision.proxmox.privileges import USER  # noqa: PLC0415 - keep --help fast
    from provision.proxmox.setup import choose, grant  # noqa: PLC0415 - keep --help fast

    host, port = target_of(target)
    if NAME.fullmatch(name) is None:
        summary = f"{name!r} cannot be a name: use lower-case letters, digits and hyphens"
        raise usage("NAME_WRONG", summary)
    file = output or Path(f"{name}.yaml")
    if file.exists():
        raise usage("FILE_EXISTS", f"{file} exists and is not overwritten", "name another file with --out")
    secret_file = token_file or Path("~/.config/provision") / f"{name}.token"
    public = _public(key)
    address = address_of(SshEndpoint(host, "root", port))
    shown = _fingerprints(SshEndpoint(host, "root", port), address, host_key, certificate)
    endpoint = SshEndpoint(host, "root", port, key.expanduser(), fingerprints=(shown[0],))
    cancel, redactor = Cancel(), state(context).redactor
    connection = _connect_by_key(endpoint, public, redactor)
    host_state = look(connection, host, cancel)
    choice = choose(host_state)
    kept = secret_file.expanduser()
    _check_secret_file(kept, f"{USER}!{name}", host, there=name in host_state.tokens, rotate=rotate)
    _enable(host_state, choice, connection, host, without_asking=enable_content)
    script = grant(host_state, choice, name, rotate=rotate)
    run_grant(connection, script, host, cancel, kept, redactor)
    trusted = Trusted(address, port, *shown, key, name, secret_file)
    write_file(file, first_inventory(name, host_state, choice, trusted))
    say(f"{host_state.node} (Proxmox VE {host_state.version}) accepts the token {USER}!{name}.")
    say(f"Written: {secret_file}")
    say(f"Written: {file}")
    say(f"Next: declare nodes in {file}, then `provision plan {file}`")
    return 0


def connect(endpoint: SshEndpoint) -> ShellConnection:
    """Return a connection that opens when it is first used."""
    from provision.connections.ssh import SshConnection  # noqa: PLC0415 - keep --help fast

    return SshConnection(endpoint)


def _check_secret_file(kept: Path, token: str, host: str, *, there: bool, rotate: bool) -> None:
    """Refuse to lose a secret: of the token on the host, or of another token in the file.

    Args:
        kept: the file of the secret.
        token: full name of the token.
        host: for messages.
        there: whether the host has the token already.
        rotate: whether the token gets a new secret.

    Raises:
        UsageError: the file holds the secret of another host's token, or lacks that of this host's token.
    """
    if there and not rotate and not kept.exists():
        raise usage(
            "TOKEN_EXISTS",
            f"{host} has the token {token} already, but its secret is not in {kept}",
            "give --rotate (the old secret becomes invalid), or another --name",
        )
    if not there and kept.exists():
        raise usage(
            "SECRET_EXISTS",
            f"{kept} exists, but {host} has no token {token}: the file holds the secret of another token",
            "give another --name or --token-file, or move the file away if nothing uses it",
        )


def target_of(text: str) -> tuple[str, int | None]:
    """Return host and port of root@HOST[:PORT]."""
    match = TARGET.fullmatch(text)
    if match is None or match["user"] != "root":
        # A login of another user, a bare host, or the address of the web interface.
        host = re.sub(r".*://|.*@|[:/\[].*", "", text)
        raise usage(
            "TARGET_WRONG",
            f"{text!r} is not of the form root@HOST",
            f"write root@{host or 'HOST'}: it is an SSH login, and only root may use the tools of Proxmox VE",
        )
    return match["host"], int(match["port"]) if match["port"] else None


def _public(key: Path) -> str:
    file = Path(f"{key.expanduser()}.pub")
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as problem:
        summary = f"{file} cannot be read: {problem.strerror}"
        raise usage(
            "PUBLIC_KEY_MISSING", summary, f"make a key: `ssh-keygen -t ed25519 -f {key}`, or give --key"
        ) from None


def address_of(endpoint: SshEndpoint) -> str:
    """Return the IPv4 address of a host, which may be a name in DNS or in ~/.ssh/config."""
    from provision.connections.ssh_target import resolve  # noqa: PLC0415 - keep --help fast

    name = resolve(endpoint).host
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except OSError as problem:
        raise usage("TARGET_WRONG", f"{name} has no IPv4 address: {problem.strerror}") from None


def _fingerprints(
    endpoint: SshEndpoint, address: str, host_key: str | None, certificate: str | None
) -> tuple[str, str]:
    """Return the fingerprints of host key and certificate that a person, or the command line, accepts.

    Raises:
        Refused: the host shows other fingerprints than those that were given.
        UsageError: there is no terminal to ask.
    """
    from provision.connections.first_login import certificate_of  # noqa: PLC0415 - keep --help fast
    from provision.connections.ssh_open import shown_fingerprint  # noqa: PLC0415 - keep --help fast
    from provision.connections.ssh_target import resolve  # noqa: PLC0415 - keep --help fast

    host = endpoint.address
    shown = (shown_fingerprint(resolve(endpoint), host), certificate_of(address, API_PORT))
    given = (host_key, certificate.upper() if certificate else None)
    codes = {"host key": "HOST_KEY_CHANGED", "certificate": "CERTIFICATE_UNKNOWN"}
    for (what, code), actual, expected in zip(codes.items(), shown, given, strict=True):
        if expected is not None and expected != actual:
            summary = f"{host} shows another {what} than the one that you gave"
            evidence = (f"given: {expected}", f"shown: {actual}")
            untouched, remedy = "Nothing was sent to the host.", "find out why before you connect to the host"
            raise Refused(
                Diagnostic(code, summary, host, evidence=evidence, untouched=untouched, remedy=remedy)
            )
    say(f"{host} shows the host key     {shown[0]}")
    say(f"{host} shows the certificate  {shown[1]}")
    if None not in given:
        return shown
    if not on_terminal():
        raise usage(
            "CONFIRMATION_MISSING",
            "there is no terminal to ask for confirmation of these fingerprints",
            "give --host-key and --certificate, as the host itself shows them",
        )
    say("Compare them with the output of these commands on the host:")
    say("`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` `pvenode cert info`")
    if not _yes("Are both equal?"):
        summary, untouched = f"you did not accept the fingerprints of {host}", "Nothing was sent to the host."
        raise Refused(Diagnostic("HOST_KEY_UNKNOWN", summary, host, untouched=untouched))
    return shown


def _connect_by_key(endpoint: SshEndpoint, public: str, redactor: Redactor) -> ShellConnection:
    """Return a connection by our key; it is installed by another key or the password if needed."""
    from provision.api.bootstrap import run  # noqa: PLC0415 - keep --help fast
    from provision.connections.first_login import install_key, key_script  # noqa: PLC0415 - keep --help fast

    connection = connect(endpoint)
    if _works(connection, endpoint):
        return connection
    other = connect(replace(endpoint, key=None))
    if _works(other, endpoint):
        run(other, key_script(public), endpoint.address, Cancel())
        other.close()
        return connect(endpoint)
    if not on_terminal():
        raise usage(
            "PASSWORD_MISSING",
            f"{endpoint.address} accepts none of our keys, and there is no terminal to ask for the password",
            f"install the key: `ssh-copy-id -i {endpoint.key}.pub root@{endpoint.address}`",
        )
    from pydantic import SecretStr  # noqa: PLC0415 - slow

    password = SecretStr(getpass.getpass(f"Password of root@{endpoint.address}: "))
    redactor.add(password)
    install_key(endpoint, password, public)
    return connect(endpoint)


def _works(connection: ShellConnection, endpoint: SshEndpoint) -> bool:
    from provision.api.bootstrap import run  # noqa: PLC0415 - keep --help fast

    try:
        run(connection, "exit 0\n", endpoint.address, Cancel())
    except Permanent as problem:
        if problem.diagnostics[0].code in LOGIN_REFUSED:
            return False
        raise
    return True


def _enable(
    host_state: ProxmoxHost,
    choice: StorageChoice,
    connection: ShellConnection,
    host: str,
    *,
    without_asking: bool,
) -> None:
    """Enable content types that storages lack if the person agrees; otherwise print how to do it."""
    from provision.api.bootstrap import run  # noqa: PLC0415 - keep --help fast
    from provision.proxmox.setup import enable  # noqa: PLC0415 - keep --help fast

    missing = choice.missing(host_state)
    for name, kinds in missing.items():
        what = f"the content type{'s' if kinds[1:] else ''} {' and '.join(kinds)} on storage {name}"
        if without_asking or (on_terminal() and _yes(f"Enable {what}? Images and first boots need it.")):
            run(connection, enable(host_state, {name: kinds}), host, Cancel())
            say(f"Enabled: {what}")
        else:
            say(
                f"Missing: {what}. Give --enable-content, or set it on the host: `pvesm set {name} --content`"
            )


def _yes(question: str) -> bool:
    from provision.cli.prompts import yes_or_no  # noqa: PLC0415 - keep --help fast

    return yes_or_no(question)
