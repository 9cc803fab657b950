"""Commands about one VM: rebuild, import."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from provision.cli.completion import complete_node
from provision.cli.files import InventoryName
from provision.cli.sites import open_site, settle
from provision.cli.state import Debug, on_terminal, out, say, usage
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Refused
from provision.values.fingerprints import OWN_KEY, is_host_key

if TYPE_CHECKING:
    from provision.api import Site
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
    undo: Annotated[bool, typer.Option("--undo", help="Remove the mark.")] = False,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Mark a VM: the next apply creates its system again.

    It gets a new system disk from its image, and apply needs the consent `replace` for that. Data disks,
    number and MAC addresses stay. The mark is a token in the notes of the VM, so every controller sees it. If
    that apply is interrupted, the next one finishes it.
    """
    from provision.api.vm_marker import mark_for_rebuild  # noqa: PLC0415 - keep --help fast

    with closing(open_site(settle(context, inventory))) as site:
        _, wrote = mark_for_rebuild(site, node, Cancel(), undo=undo)
    if undo:
        say(f"{node} is no longer marked." if wrote else f"{node} was not marked.")
    else:
        text = f"{node} is marked." if wrote else f"{node} was marked already."
        say(f"{text} Create it again: `provision apply {inventory} --allow replace`")
    return 0


def import_vm(
    context: typer.Context,
    inventory: InventoryName,
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="NODE", help="A VM of the inventory.", show_default=False, autocompletion=complete_node
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Take over the VMs of all nodes; their host keys are not noted.")
    ] = False,
    host_key: Annotated[
        str | None,
        typer.Option(
            "--host-key", metavar="SHA256:...", help="The SSH host key of the VM, as its console shows it."
        ),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Do not ask. Needs --host-key if the VM has no marker with a key."),
    ] = False,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Take over the VM that has the VMID of a node.

    Shows what differs, then writes the tag and the marker of provision to the VM, and nothing else: the next
    plan shows the changes. The marker holds the SSH host key of the VM, and only this key is accepted later.
    Without --host-key you are asked to confirm the key that the VM shows. The VM of a node that was renamed
    is taken over with its marker and the key in it.

    With --all the VMs of all nodes are taken over at once. SSH to them accepts the keys in known_hosts.
    """
    from provision.api.import_vms import adopt, adoption, shown_host_key  # noqa: PLC0415 - keep --help fast

    if host_key is not None and not is_host_key(host_key):
        raise usage(
            "FINGERPRINT_WRONG", f"{host_key!r} is not a fingerprint like SHA256:...", f"show it: `{OWN_KEY}`"
        )
    if not yes and not on_terminal():
        raise usage(
            "CONFIRMATION_MISSING",
            "there is no terminal to ask for confirmation",
            "give --host-key and --yes",
        )
    if every is (node is not None):
        raise usage("NODE_MISSING", "give either a node or --all", f"`provision import {inventory} --all`")
    with closing(open_site(settle(context, inventory))) as site:
        if node is None:
            return _import_all(site, inventory, yes=yes)
        candidate = adoption(site, node, Cancel())
        _print_adoption(candidate)
        if candidate.ours and host_key in {None, *candidate.host_keys}:
            say(f"{node} is managed by this inventory already.")
            return 0
        known_key = host_key or next(iter(candidate.host_keys), "")
        key = known_key or shown_host_key(site, node)
        command = f"provision import {inventory} {node} --host-key {key or 'SHA256:...'}"
        if not key or (not known_key and not on_terminal()):
            shows = f"shows the host key {key}" if key else "shows no host key now"
            start = ""
            if not candidate.running:
                shows = "is off and shows no host key"
                start = f"start it on the host: `qm start {candidate.vmid}`, "
            raise Refused(
                Diagnostic(
                    "HOST_KEY_UNKNOWN",
                    f"{node} {shows}, and nobody has confirmed a key",
                    node,
                    untouched="The VM was not changed.",
                    remedy=f"{start}show the key on the console of the VM: `{OWN_KEY}`,"
                    f" then accept it: `{command}`",
                )
            )
        if not yes and not _is_confirmed(node, key, shown=not known_key):
            return 5
        adopt(site, node, key, Cancel())
    say(f"{node} is now managed by this inventory. Next: `provision plan {inventory}`")
    return 0


def _import_all(site: Site, inventory: str, *, yes: bool) -> int:
    """Take over the VMs of all nodes; exit code 4 if one of them cannot be."""
    from provision.api.import_vms import adopt_all, adoptions  # noqa: PLC0415 - keep --help fast
    from provision.cli.prompts import yes_or_no  # noqa: PLC0415 - keep --help fast
    from provision.report.problems import print_diagnostics  # noqa: PLC0415 - keep --help fast
    from provision.report.style import count  # noqa: PLC0415 - keep --help fast

    candidates, problems = adoptions(site, Cancel())
    new = [candidate for candidate in candidates if not candidate.ours]
    for candidate in new:
        say(f"{candidate.node}:")
        _print_adoption(candidate)
    print_diagnostics(out(), problems, full=True)
    if new and not yes and not yes_or_no(f"Take over {count(len(new), 'VM')}?"):
        return 5
    adopted = adopt_all(site, Cancel()) if new else ()
    say(f"{count(len(adopted), 'VM')} taken over. Next: `provision plan {inventory}`")
    return 4 if problems else 0


def _print_adoption(candidate: Adoption) -> None:
    from provision.report.explain import print_differences  # noqa: PLC0415 - keep --help fast
    from provision.report.style import printable  # noqa: PLC0415 - keep --help fast

    state = "running" if candidate.running else "off"
    say(f"VM {candidate.vmid} is {printable(candidate.name)}, and it is {state}.")
    if candidate.changes:
        say("The next apply would change:")
        print_differences(out(), candidate.changes)
    else:
        say("It is as the inventory declares.")


def _is_confirmed(node: str, key: str, *, shown: bool) -> bool:
    from provision.cli.prompts import yes_or_no  # noqa: PLC0415 - keep --help fast

    if shown:
        say(
            f"The VM shows the host key {key}. Compare it with the output of this on its console: `{OWN_KEY}`"
        )
        return yes_or_no(f"Is this the key of {node}, and do you want to take the VM over?")
    return yes_or_no(f"Take it over as {node}, with the host key {key}?")
