"""Commands of the lab: up, down, status, console."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from provision.cli.completion import complete_inventory
from provision.cli.lab_network import lab_errors, lab_settings, say, start
from provision.cli.sites import read
from provision.cli.state import Debug, out, state
from provision.values.outcomes import ExitCode
from provision.values.redaction import Redactor

LabInventory = Annotated[
    str,
    typer.Argument(
        metavar="INVENTORY",
        help="Inventory with a lab: section; the shipped inventories/lab.yaml if left out.",
        autocompletion=complete_inventory,
        show_default=False,
    ),
]
DEFAULT = "inventories/lab.yaml"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(
        help="The rehearsal site on this machine: stand-ins for Proxmox, router and guests; needs root.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    for command in (up, down, status, console):
        group.command()(command)
    app.add_typer(group, name="lab")


def up(
    context: typer.Context,
    inventory: LabInventory = DEFAULT,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Start the lab: network, router, hypervisor, API. What runs is left as it is.

    The first time, images are made, which takes minutes.
    """
    declared = read(inventory, state(context).redactor)
    name = lab_settings(declared).name
    with lab_errors(name, inventory):
        start(declared)
    out().print(f"lab {name} is up; next: provision apply {inventory}", soft_wrap=True)
    return 0


def down(inventory: LabInventory = DEFAULT, debug: Debug = False) -> int:  # noqa: ARG001 - its callback does the work
    """Remove every process, namespace, mount and file of the lab. Images stay in the cache."""
    name = lab_settings(read(inventory)).name
    with lab_errors(name, inventory):
        from provision.lab import site  # noqa: PLC0415 - keep --help fast

        was = site.down(name, say)
    out().print(f"lab {name} is down" if was else f"there is nothing of lab {name}", soft_wrap=True)
    return 0


def status(inventory: LabInventory = DEFAULT, debug: Debug = False) -> int:  # noqa: ARG001 - its callback does the work
    """Show what runs and where its logs are. Exit 1 when the lab is not up."""
    settings = lab_settings(read(inventory))
    name = settings.name
    with lab_errors(name, inventory):
        from provision.lab import site  # noqa: PLC0415 - keep --help fast
        from provision.lab.settings import namespace  # noqa: PLC0415 - keep --help fast

        found, others = site.status(name), site.differences(settings)
    from provision.report.style import printable  # noqa: PLC0415 - keep --help fast

    driver = f", driver {found.driver}" if found.driver else ""
    out().print(f"lab {name} is {'up' if found.up else 'not up'}{driver}", soft_wrap=True)
    for part in found.parts:
        pid = f"  pid {part.pid}" if part.pid is not None else ""
        detail = f"  {part.detail}" if part.detail else ""
        out().print(
            printable(f"  {part.kind:<10}  {part.name:<16}  {part.state:<8}{pid}{detail}".rstrip()),
            soft_wrap=True,
        )
    if found.parts:
        out().print(f"  {'network':<10}  ip netns exec {namespace(settings.folder)} COMMAND", soft_wrap=True)
        out().print(f"  {'files':<10}  {settings.folder}", soft_wrap=True)
    if others:
        out().print(f"it was started with other settings than the inventory's: {others}", soft_wrap=True)
        out().print(f"next: provision lab down {inventory}", soft_wrap=True)
    elif not found.up:
        if found.parts and all(part.state in {"up", "off"} for part in found.parts):
            out().print("all of it runs, and `lab up` has not seen all of it serve", soft_wrap=True)
        out().print(f"next: provision lab up {inventory}", soft_wrap=True)
    return int(ExitCode.DONE if found.up else ExitCode.ERROR)


def console(
    context: typer.Context,
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="A VM, the hypervisor or `router`.", show_default=False)
    ],
    inventory: LabInventory = DEFAULT,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, metavar="N", help="How many of the last lines.")
    ] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on printing until Ctrl-C.")] = False,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Print the end of a machine's serial console."""
    from provision.inventory import open_at_hand  # noqa: PLC0415 - keep --help fast

    declared = read(inventory, state(context).redactor)
    name = lab_settings(declared).name
    with lab_errors(name, inventory):
        from provision.lab import site  # noqa: PLC0415 - keep --help fast

        file = site.console(name, node)
    open_at_hand(declared)
    redactor = declared.redactor
    place = _print_tail(file, lines, redactor)
    while follow:
        time.sleep(0.5)
        place = _print_from(file, place, redactor)
    return 0


def _print_tail(file: Path, lines: int, redactor: Redactor) -> int:
    """Print the last lines of a console and return where they end."""
    data = file.read_bytes()
    _print_lines(b"\n".join(data.splitlines()[-lines:]), redactor)
    return len(data)


def _print_from(file: Path, place: int, redactor: Redactor) -> int:
    """Print the whole lines after a place and return where they end; a log that began anew is read anew."""
    data = file.read_bytes()
    new = data[place:] if len(data) >= place else data
    whole = new[: new.rfind(b"\n") + 1]
    _print_lines(whole, redactor)
    return len(data) - len(new) + len(whole)


def _print_lines(data: bytes, redactor: Redactor) -> None:
    from provision.report.style import printable  # noqa: PLC0415 - keep --help fast

    for line in redactor.data(data).decode(errors="replace").splitlines():
        print(printable(line.rstrip("\r")))
