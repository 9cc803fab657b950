"""Commands about files alone: validate, schema."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from provision.cli.completion import complete_inventory
from provision.cli.sites import read
from provision.cli.state import Debug, err, say, state, usage
from provision.values.diagnostics import Severity

InventoryName = Annotated[
    str,
    typer.Argument(
        metavar="INVENTORY",
        help="An inventory file, or the name of a shipped one (inventories/lab.yaml).",
        autocompletion=complete_inventory,
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(validate)
    app.command()(schema)


def validate(context: typer.Context, inventory: InventoryName, debug: Debug = False) -> int:  # noqa: ARG001 - its callback does the work
    """Check an inventory file.

    Checks schema, references and formats. Opens no secret, key or network connection.
    """
    declared = read(inventory, state(context).redactor)
    from provision.api.support import unsupported, untested  # noqa: PLC0415 - keep --help fast
    from provision.inventory.check_images import unknown_digests, unnamed_images  # noqa: PLC0415 - keep --help fast
    from provision.report.problems import print_diagnostics  # noqa: PLC0415 - keep --help fast
    from provision.report.style import count  # noqa: PLC0415 - keep --help fast

    sizes = ", ".join(count(number, kind) for kind, number in declared.sizes.items())
    say(f"{declared.file} is valid: {declared.name}, {sizes}")
    features = (
        replace(feature.problem(declared), severity=Severity.NOTE) for feature in unsupported(declared)
    )
    notes = [*untested(declared), *features, *unknown_digests(declared), *unnamed_images(declared)]
    if notes:
        print_diagnostics(err(), notes)
    return 0


def schema(
    events: Annotated[bool, typer.Option("--events", help="The schema of --json output.")] = False,
    output: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write to a file.")
    ] = None,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Print the JSON Schema of inventories, or of events."""
    if events:
        from provision.report.schema import event_schema  # noqa: PLC0415 - keep --help fast

        content = event_schema()
    else:
        from provision.api.domains import vocabulary  # noqa: PLC0415 - keep --help fast
        from provision.inventory import json_schema  # noqa: PLC0415 - keep --help fast

        content = json_schema(vocabulary())
    text = json.dumps(content, indent=2) + "\n"
    if output is None:
        print(text, end="")
    else:
        write_file(output, text)
    return 0


def write_file(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file that the user named; a new one has a mode of its own, whatever the umask allows.

    Raises:
        UsageError: it cannot be written.
    """
    with writing(path):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, mode), "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the file when the block cannot write it.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        yield
    except OSError as problem:
        remedy = "name a file in an existing folder that you may write to"
        raise usage("FILE_NOT_WRITTEN", f"{path} cannot be written: {problem.strerror}", remedy) from problem


def check_writable(path: Path | None) -> None:
    """Refuse a file that cannot be written, before the work whose result it is for.

    Raises:
        UsageError: it is a folder, or its folder is absent or closed to this user.
    """
    if path is None:
        return
    with writing(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISDIR(path.parent.stat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
