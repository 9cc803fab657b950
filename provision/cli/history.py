"""Commands about former runs: runs, show, report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from provision.cli.completion import complete_run
from provision.cli.files import write_file
from provision.cli.sites import journal_file
from provision.cli.state import Debug, out, usage

if TYPE_CHECKING:
    from provision.report.history import RunRecord

RunId = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run, or the beginning of its id. `last` is the latest run.",
        autocompletion=complete_run,
    ),
]

NAMED = 3
"""How many runs a message names."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("runs")(list_runs)
    app.command("show")(show_run)
    app.command("report")(report_run)


def list_runs(
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="How many.")] = 20,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """List former runs of this machine, the latest first."""
    from provision.engine.journal import runs  # noqa: PLC0415 - keep --help fast
    from provision.report.history import print_runs, record  # noqa: PLC0415 - keep --help fast

    print_runs(out(), [record(each) for each in runs(journal_file(), limit)])
    return 0


def show_run(
    run: RunId,
    full: Annotated[
        bool, typer.Option("--full", help="Whole contents, and all output of every change and effect.")
    ] = False,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Show what a run did, with the last output of what failed."""
    from provision.report.history import print_run  # noqa: PLC0415 - keep --help fast

    print_run(out(), _found(run), full=full)
    return 0


def report_run(
    run: RunId,
    output: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="The file to write.", show_default="provision-RUN.html"
        ),
    ] = None,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Write a run as one HTML page that needs nothing else."""
    from provision.report.html import html_report  # noqa: PLC0415 - keep --help fast

    found = _found(run)
    file = output or Path(f"provision-{found.id}.html")
    write_file(file, html_report(found))
    out().print(f"Written: {file}", soft_wrap=True)
    return 0


def _found(name: str) -> RunRecord:
    """Return a run by the beginning of its id.

    Raises:
        UsageError: there is none, or more than one.
    """
    from provision.engine.journal import run, runs  # noqa: PLC0415 - keep --help fast
    from provision.report.history import record  # noqa: PLC0415 - keep --help fast

    file = journal_file()
    if name == "last":
        latest = runs(file, 1)
        if not latest:
            raise usage("RUN_UNKNOWN", "there is no run yet", "provision apply INVENTORY makes one")
        name = latest[0]["id"]
    row = run(file, name) if name else None
    if row is None:
        ids = sorted(
            (each["id"] for each in runs(file, -1) if name and each["id"].startswith(name)), reverse=True
        )
        if not ids:
            raise usage(
                "RUN_UNKNOWN",
                f"there is no run that begins with {name!r}",
                "provision runs lists them; plan and verify change nothing and leave none:"
                " plan --out FILE and verify --junit FILE keep what they found",
            )
        some = ", ".join(ids[:NAMED]) + (", ..." if len(ids) > NAMED else "")
        raise usage("RUN_AMBIGUOUS", f"{len(ids)} runs begin with {name!r}: {some}", "give more of the id")
    return record(row)
