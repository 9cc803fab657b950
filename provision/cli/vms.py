"""Commands about one VM: rebuild, import."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from provision.cli.completion import complete_node
from provision.cli.files import InventoryName
from provision.cli.sites import open_site, settle
from provision.cli.state import Debug, on_terminal, out, usage
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Refused
from provision.values.fingerprints import OWN_KEY, is_host_key

if TYPE_CHECKING:
    from provision.api.import_vms import Adoption


NodeName = Annotated[
    str,
    typer.Argument(
        metavar="NODE", help="A VM of the inventory.", show_default=False, autocompletion=complete_node
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(rebuild)
    app.command("import")(import_vm)


def rebuild(
    context: typer.Context,
    inventory: InventoryName,
    node: NodeName,
    undo: Annotated[bool, typer.Option("--undo", help="Take the mark off again.")] = False,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Mark a VM to be made anew by the next apply, with new disks; that apply needs the consent `replace`.

    The mark is a token in the VM's notes, so every controller sees it; the VM that is made instead has none.
    An apply that is cut off in between is finished by the next one.
    """
    from provision.api.vm_marker import mark_for_rebuild  # noqa: PLC0415 - keep --help fast

    found = settle(context, inventory)
    with closing(open_site(found)) as site:
        _, wrote = mark_for_rebuild(site, node, Cancel(), undo=undo)
    if undo:
        text = f"{node} stays as it is" if wrote else f"{node} was not marked"
    else:
        text = f"{node} is marked" if wrote else f"{node} is marked already"
        text += f" and is made anew by: provision apply {inventory} --allow replace"
    out().print(text, soft_wrap=True)
    return 0


def import_vm(
    context: typer.Context,
    inventory: InventoryName,
    node: NodeName,
    host_key: Annotated[
        str | None,
        typer.Option(
            "--host-key", metavar="SHA256:...", help="The guest's SSH host key, as its console shows it."
        ),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", "-y", help="Adopt it without asking; needs --host-key where no marker names a key."
        ),
    ] = False,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Adopt the VM that has a node's VMID: show what differs, then write our tag and marker to it.

    Nothing else is changed: what differs is the next plan's business. The marker names the guest's SSH host
    key, the only one that is accepted from then on; without --host-key, the one that it shows is confirmed.
    The VM of a node that was renamed is taken over with its marker, and with the key that this names.
    """
    from provision.api.import_vms import adopt, adoption, shown_host_key  # noqa: PLC0415 - keep --help fast

    if host_key is not None and not is_host_key(host_key):
        raise usage("FINGERPRINT_WRONG", f"{host_key!r} is no fingerprint like SHA256:...", f"run {OWN_KEY}")
    if not yes and not on_terminal():
        raise usage("CONFIRMATION_MISSING", "there is no terminal to ask on", "give --host-key and --yes")
    found = settle(context, inventory)
    with closing(open_site(found)) as site:
        seen = adoption(site, node, Cancel())
        _print_adoption(seen)
        if seen.ours and host_key in {None, *seen.host_keys}:
            out().print(f"{node} is ours already", soft_wrap=True)
            return 0
        told = host_key or next(iter(seen.host_keys), "")
        key = told or shown_host_key(site, node)
        command = f"provision import {inventory} {node} --host-key {key or 'SHA256:...'}"
        if not key or (not told and not on_terminal()):
            shows = f"shows the host key {key}" if key else "shows no host key now"
            raise Refused(
                Diagnostic(
                    "HOST_KEY_UNKNOWN",
                    f"{node} {shows}, and nobody has said which one is its own",
                    node,
                    untouched="It was left as it is.",
                    remedy=f"compare with `{OWN_KEY}` on its console, then {command}",
                )
            )
        if not yes and not _agreed(node, key, shown=not told):
            return 5
        adopt(site, node, key, Cancel())
    out().print(f"{node} is ours now; next: provision plan {inventory}", soft_wrap=True)
    return 0


def _print_adoption(seen: Adoption) -> None:
    from provision.report.explain import print_differences  # noqa: PLC0415 - keep --help fast
    from provision.report.style import printable  # noqa: PLC0415 - keep --help fast

    state = "running" if seen.running else "off"
    print(f"VM {seen.vmid} is {printable(seen.name)}, {state}")
    if seen.changes:
        out().print("The next apply would change:", soft_wrap=True)
        print_differences(out(), seen.changes)
    else:
        out().print("It is as the inventory says.", soft_wrap=True)


def _agreed(node: str, key: str, *, shown: bool) -> bool:
    from provision.cli.prompts import yes_or_no  # noqa: PLC0415 - keep --help fast

    if shown:
        out().print(f"It shows the host key {key}; compare with `{OWN_KEY}` on its console.", soft_wrap=True)
        return yes_or_no(f"Is this the key of {node}, and shall the VM be adopted?")
    return yes_or_no(f"Adopt it as {node}, with the host key {key}?")
