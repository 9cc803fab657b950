"""Commands of the lab: up, down, status, console."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from provision.cli.completion import complete_inventory
from provision.cli.lab_network import lab_errors, lab_settings, report_progress, start
from provision.cli.sites import read
from provision.cli.state import Debug, out, say, state
from provision.values.outcomes import ExitCode
from provision.values.redaction import Redactor

LabInventory = Annotated[
    str,
    typer.Argument(
        metavar="INVENTORY",
        help="An inventory with a lab: section. Without it, the shipped inventories/lab.yaml.",
        autocompletion=complete_inventory,
        show_default=False,
    ),
]
DEFAULT = "inventories/lab.yaml"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(
        help="The rehearsal site on this machine.",
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
    """Start the lab: network, router, hypervisor, API.

    Parts that run already are left alone. The first start builds images, which takes minutes. Needs root.
    """
    declared = read(inventory, state(context).redactor)
    name = lab_settings(declared).name
    with lab_errors(name, inventory):
        start(declared)
    say(f"The lab {name} is up. Next: `provision apply {inventory}`")
    return 0


def down(inventory: LabInventory = DEFAULT, debug: Debug = False) -> int:  # noqa: ARG001 - its callback does the work
    """Remove the lab: processes, network, mounts, files.

    Images stay in the cache. Needs root.
    """
    name = lab_settings(read(inventory)).name
    with lab_errors(name, inventory):
        from provision.lab import site  # noqa: PLC0415 - keep --help fast

        existed = site.down(name, report_progress)
    say(f"The lab {name} is down." if existed else f"There is no lab {name}.")
    return 0


def status(inventory: LabInventory = DEFAULT, debug: Debug = False) -> int:  # noqa: ARG001 - its callback does the work
    """Show which parts of the lab run. Exit 1 if it is not up."""
    settings = lab_settings(read(inventory))
    name = settings.name
    with lab_errors(name, inventory):
        from provision.lab import site  # noqa: PLC0415 - keep --help fast
        from provision.lab.settings import namespace  # noqa: PLC0415 - keep --help fast

        lab, differences = site.status(name), site.differences(settings)
    from provision.report.style import printable  # noqa: PLC0415 - keep --help fast

    driver = f" (driver {lab.driver})" if lab.driver else ""
    say(f"The lab {name} is {'up' if lab.up else 'not up'}{driver}.")
    for part in lab.parts:
        pid = f"  pid {part.pid}" if part.pid is not None else ""
        detail = f"  {part.detail}" if part.detail else ""
        out().print(
            printable(f"  {part.kind:<10}  {part.name:<16}  {part.state:<8}{pid}{detail}".rstrip()),
            soft_wrap=True,
        )
    if lab.parts:
        out().print(f"  {'network':<10}  ip netns exec {namespace(settings.folder)} COMMAND", soft_wrap=True)
        out().print(f"  {'files':<10}  {settings.folder}", soft_wrap=True)
    if differences:
        say(f"It was started with other settings than the inventory has now: {differences}.")
        say(f"Next: `provision lab down {inventory}`")
    elif not lab.up:
        if lab.parts and all(part.state in {"up", "off"} for part in lab.parts):
            say("All parts run, but the start did not finish.")
        say(f"Next: `provision lab up {inventory}`")
    return int(ExitCode.DONE if lab.up else ExitCode.ERROR)


def console(
    context: typer.Context,
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="A VM, the hypervisor or `router`.", show_default=False)
    ],
    inventory: LabInventory = DEFAULT,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, metavar="N", help="Number of last lines to print.")
    ] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C.")] = False,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Print the end of the serial console of a machine."""
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
    """Print the whole lines after a place and return where they end; a log that began again is read again."""
    data = file.read_bytes()
    new = data[place:] if len(data) >= place else data
    whole = new[: new.rfind(b"\n") + 1]
    _print_lines(whole, redactor)
    return len(data) - len(new) + len(whole)


def _print_lines(data: bytes, redactor: Redactor) -> None:
    from provision.report.style import printable  # noqa: PLC0415 - keep --help fast

    for line in redactor.data(data).decode(errors="replace").splitlines():
        print(printable(line.rstrip("\r")))
