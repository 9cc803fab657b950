"""Commands about former runs: runs, show, report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from provision.cli.completion import complete_run
from provision.cli.files import write_file
from provision.cli.sites import journal_file
from provision.cli.state import Debug, out, say, usage

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
    """List the runs of this machine, the latest first."""
    from provision.api.past_runs import runs  # noqa: PLC0415 - keep --help fast
    from provision.report.history import print_runs, record  # noqa: PLC0415 - keep --help fast

    print_runs(out(), [record(row) for row in runs(journal_file(), limit)])
    return 0


def show_run(
    run: RunId,
    full: Annotated[
        bool, typer.Option("--full", help="Show whole contents, all output, and every check.")
    ] = False,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Show what a run did.

    Of what failed it shows the last lines of output, and the evidence of checks.
    """
    from provision.report.history import print_run  # noqa: PLC0415 - keep --help fast

    print_run(out(), find_run(run), full=full)
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
    """Write a run as one HTML page without links."""
    from provision.report.html import html_report  # noqa: PLC0415 - keep --help fast

    record = find_run(run)
    file = output or Path(f"provision-{record.id}.html")
    write_file(file, html_report(record), 0o600)
    say(f"Written: {file}")
    return 0


def find_run(name: str) -> RunRecord:
    """Return a run by the beginning of its id.

    Raises:
        UsageError: no run begins like that, or more than one.
    """
    from provision.api.past_runs import run, runs  # noqa: PLC0415 - keep --help fast
    from provision.report.history import record  # noqa: PLC0415 - keep --help fast

    file = journal_file()
    if name == "last":
        latest = runs(file, 1)
        if not latest:
            raise usage("RUN_UNKNOWN", "there is no run yet", "make one: `provision apply INVENTORY`")
        name = latest[0]["id"]
    row = run(file, name) if name else None
    if row is None:
        ids = sorted(
            (row["id"] for row in runs(file, -1) if name and row["id"].startswith(name)), reverse=True
        )
        if not ids:
            raise usage(
                "RUN_UNKNOWN",
                f"there is no run that begins with {name!r}",
                "see which runs there are: `provision runs`. A plan is not a run. Save a plan like this:"
                " `provision plan INVENTORY --out FILE`",
            )
        some = ", ".join(ids[:NAMED]) + (", ..." if len(ids) > NAMED else "")
        raise usage(
            "RUN_AMBIGUOUS", f"{len(ids)} runs begin with {name!r}: {some}", "give more characters of the id"
        )
    return record(row)
