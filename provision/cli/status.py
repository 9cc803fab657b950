"""The command that says what is up and what drifts."""

from __future__ import annotations

from contextlib import closing

import typer

from provision.cli.files import InventoryName
from provision.cli.options import Json, Playbook, Step, Target, run_options
from provision.cli.sites import open_site, settle
from provision.cli.state import Debug, err, out
from provision.cli.watch import watched


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(status)


def status(
    context: typer.Context,
    inventory: InventoryName,
    playbook: Playbook = None,
    target: Target = None,
    step: Step = None,
    json: Json = False,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Show what is up and what drifts, one line each. Changes nothing.

    Exit code 2 means drift, 1 that something did not answer or could not be compared, 4 that preflight
    refuses an apply.
    """
    declared = settle(context, inventory)
    options = run_options(target, step, None)
    from provision.api.status import status as status_of  # noqa: PLC0415 - keep --help fast
    from provision.api.status import status_code  # noqa: PLC0415 - keep --help fast

    with (
        closing(open_site(declared, playbook)) as site,
        watched(context, site, json=json, errors=not json) as (_, emit, cancel),
    ):
        emit.hides_problems = not json  # those that refuse are shown below
        plan, rows = status_of(site, options, emit, cancel)
    if not json:
        from provision.report.problems import print_diagnostics  # noqa: PLC0415 - keep --help fast
        from provision.report.status import print_status  # noqa: PLC0415 - keep --help fast

        print_status(out(), rows, plan.orphans)
        print_diagnostics(err(), plan.refusals)
    return int(status_code(plan))
