"""Commands that look at the site or change it: plan, apply, rotate, verify, destroy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from provision.cli.completion import complete_inventory
from provision.cli.files import InventoryName, check_writable, write_file, writing
from provision.cli.names import saved_plan
from provision.cli.options import Allow, Full, Json, Playbook, Prune, Step, Target, Yes, run_options
from provision.cli.reserved import confirm
from provision.cli.sites import open_site, read, settle
from provision.cli.state import Debug, on_terminal, out, say, state, usage
from provision.cli.watch import watched
from provision.contracts import common_effects
from provision.values.consent import Consent
from provision.values.outcomes import ExitCode

if TYPE_CHECKING:
    from provision.api import Options, Site
    from provision.engine.model import Plan, RunReport
    from provision.inventory import Inventory
    from provision.report.progress import Progress


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(plan)
    app.command()(apply)
    app.command()(rotate)
    app.command()(verify)
    app.command()(destroy)


def plan(
    context: typer.Context,
    inventory: InventoryName,
    detailed: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit 2 if there are changes, for drift checks.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Save the plan, for `provision apply FILE`."),
    ] = None,
    playbook: Playbook = None,
    target: Target = None,
    step: Step = None,
    allow: Allow = None,
    prune: Prune = False,
    json: Json = False,
    full: Full = False,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Show what apply would do. Changes nothing."""
    check_writable(output)
    declared = settle(context, inventory)
    options = run_options(target, step, allow, prune=prune)
    from provision.api import plan_code  # noqa: PLC0415 - keep --help fast

    with closing(open_site(declared, playbook)) as site:
        with watched(context, site, json=json, errors=not json) as (_, emit, cancel):
            emit.hides_problems = not json  # the plan itself shows them
            result = site.plan(options, emit, cancel, detailed=detailed)
        if not json:
            _print_plan(result, full=full)
        if output is not None and not result.refusals:
            _save_plan(site, result, output, json=json)
    return int(plan_code(result, detailed=detailed))


def _save_plan(site: Site, result: Plan, output: Path, *, json: bool) -> None:
    """Save a plan; one that does not know what systems hold would be refused as soon as they answer."""
    from provision.report.style import count  # noqa: PLC0415 - keep --help fast

    unreached = [step for step in result.steps if step.unreached and not step.excused]
    if unreached:
        if not json:
            say(f"The plan is not saved: {count(len(unreached), 'step')} could not be planned.")
        return
    with writing(output):
        site.save(result, output)
    if not json:
        say(f"The plan is saved. Apply it: `provision apply {output}`")


def apply(
    context: typer.Context,
    inventory: Annotated[
        str,
        typer.Argument(
            metavar="INVENTORY|PLAN",
            help="An inventory, or a plan that `provision plan --out` saved.",
            autocompletion=complete_inventory,
        ),
    ],
    yes: Yes = False,
    allow: Allow = None,
    playbook: Playbook = None,
    target: Target = None,
    step: Step = None,
    json: Json = False,
    full: Full = False,
    prune: Prune = False,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="End the run after the first failed step.")
    ] = False,
    reserved: Annotated[
        bool,
        typer.Option("--reserved", help="Say that all addresses are reserved on the router by hand."),
    ] = False,
    debug: Debug = False,
) -> int:
    """Bring the site to the state that the inventory declares.

    Starts the lab if the inventory declares one.
    """
    _require_confirmation(yes=yes, json=json)
    name, saved, saved_playbook = saved_plan(inventory)
    if saved is not None:
        _refuse_saved_options(
            name,
            {
                "--target": target,
                "--step": step,
                "--playbook": playbook,
                "--prune": prune,
                "--reserved": reserved,
            },
        )
    declared = settle(context, name, start_lab=True)
    options = run_options(target, step, allow, prune=prune)
    with closing(open_site(declared, saved_playbook or playbook)) as site:
        if reserved:
            confirm(site, [])
        report = _apply(context, site, options, saved, yes=yes, json=json, full=full, fail_fast=fail_fast)
    if not json:
        # Once something was done, the saved plan is stale by its own work.
        next_name = name if saved is not None and report.steps else inventory
        _print_summary(report, f"provision apply {next_name}", debug=debug or state(context).debug)
    return report.exit_code


def rotate(
    context: typer.Context,
    inventory: InventoryName,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Name of the generated secret.", show_default=False),
    ],
    yes: Yes = False,
    allow: Allow = None,
    playbook: Playbook = None,
    json: Json = False,
    full: Full = False,
    debug: Debug = False,
) -> int:
    """Replace a generated secret on all machines that use it.

    If it is interrupted, run it again, or run apply: both continue with the same new secret.
    """
    _require_confirmation(yes=yes, json=json)
    declared = settle(context, inventory)
    options = replace(run_options(None, None, allow), rotate=frozenset({name}))
    with closing(open_site(declared, playbook)) as site:
        report = _apply(context, site, options, None, yes=yes, json=json, full=full)
    if not json:
        _print_summary(report, f"provision rotate {inventory} {name}", debug=debug or state(context).debug)
    return report.exit_code


def _require_confirmation(*, yes: bool, json: bool) -> None:
    if not yes and (json or not on_terminal()):
        raise usage("CONFIRMATION_MISSING", "there is no terminal to ask for confirmation", "give --yes")


def _apply(
    context: typer.Context,
    site: Site,
    options: Options,
    saved: Path | None,
    *,
    yes: bool,
    json: bool,
    full: bool,
    fail_fast: bool = False,
) -> RunReport:
    """Apply with everything shown and asked that a person has to see."""
    can_ask = on_terminal() and not json
    with watched(context, site, json=json, fail_fast=fail_fast) as (progress, emit, cancel):

        def confirm(result: Plan) -> bool:
            if json:
                return yes
            emit.shown = frozenset(result.warnings)
            return _paused(progress, lambda: _show_and_ask(result, yes=yes, full=full))

        def ask(question: str) -> bool | None:
            return None if yes or not can_ask else _paused(progress, lambda: _yes(question))

        report = site.apply(None, options, emit, cancel, confirm, ask=ask, saved=saved)
    if emit.failed_fast and report.exit_code == ExitCode.INTERRUPTED:
        report = replace(report, interrupted=False, exit_code=int(ExitCode.ERROR))
    return report


def verify(
    context: typer.Context,
    inventory: InventoryName,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 7 if a check is unknown.")] = False,
    target: Target = None,
    pods: Annotated[
        bool, typer.Option("--pods/--no-pods", help="Run checks that make pods for a time, and remove them.")
    ] = True,
    damage: Annotated[
        str | None,
        typer.Option(
            "--break", metavar="CHECK", help="Damage what a check looks at: it must fail. In a lab only."
        ),
    ] = None,
    json: Json = False,
    full: Full = False,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Check the site, on fresh answers. Changes nothing on machines.

    The checks have means of their own: they do not read what apply believes. In a cluster some run pods, in a
    namespace of their own that is removed at the end; `--no-pods` leaves those out.
    """
    check_writable(junit)
    declared = settle(context, inventory)
    if damage is not None:
        return _break_check(context, declared, damage, json=json, full=full)
    strict = strict or declared.verify.strict
    options = replace(run_options(target, None, None, strict=strict), pods=pods)
    with (
        closing(open_site(declared)) as site,
        watched(context, site, json=json, errors=not json) as (_, emit, cancel),
    ):
        report = site.verify(options, emit, cancel)
    if junit is not None:
        from provision.report.junit import junit_xml  # noqa: PLC0415 - keep --help fast

        write_file(junit, junit_xml(declared.name, report.checks, report.seconds))
    if not json:
        from provision.report.checks import print_checks  # noqa: PLC0415 - keep --help fast

        print_checks(out(), report.checks, seconds=report.seconds, full=full)
    return int(report.exit_code(strict=strict))


def _break_check(context: typer.Context, declared: Inventory, check: str, *, json: bool, full: bool) -> int:
    """Damage a lab, and end with 0 if the report turned red for it."""
    from provision.api.breaking import break_check  # noqa: PLC0415 - keep --help fast
    from provision.report.checks import print_checks  # noqa: PLC0415 - keep --help fast

    with (
        closing(open_site(declared)) as site,
        watched(context, site, json=json, errors=not json) as (_, emit, cancel),
    ):
        broken = break_check(site, check, emit, cancel)
    if not json:
        print_checks(out(), broken.report.checks, seconds=broken.report.seconds, full=full)
        verb = "fails now, as it must" if broken.is_red else "did not notice it"
        say(f"{broken.subject} was damaged: {broken.what}\n{check} {verb}. Apply repairs it.")
    return int(ExitCode.DONE if broken.is_red else ExitCode.ERROR)


def destroy(
    context: typer.Context,
    inventory: InventoryName,
    playbook: Playbook = None,
    yes: Yes = False,
    allow: Allow = None,
    host: Annotated[
        bool, typer.Option("--host", help="Also remove what was set up on machines that stay.")
    ] = False,
    json: Json = False,
    full: Full = False,
    debug: Debug = False,
) -> int:
    """Remove what apply made, and nothing else.

    Asks for the name of the inventory.
    """
    delete = common_effects.DELETE.name
    agreed = delete in (allow or []) or read(inventory).consent(delete) is Consent.ALLOW
    if not (yes and agreed) and not (on_terminal() and not json):
        flags = "--yes" if agreed else "--yes --allow delete"
        summary = "destroy removes machines and their data, and there is no terminal to ask for confirmation"
        raise usage("CONFIRMATION_MISSING", summary, f"give {flags}")
    declared = settle(context, inventory)
    options = run_options(None, None, allow, host=host)
    with (
        closing(open_site(declared, playbook)) as site,
        watched(context, site, json=json) as (progress, emit, cancel),
    ):

        def show_and_ask(result: Plan) -> bool:
            _print_plan(result, full=full)
            if _removes_nothing(result, site, declared, host=host) or (yes and agreed):
                return True
            from provision.cli.prompts import exactly  # noqa: PLC0415 - keep --help fast

            return exactly("This removes machines and their data.", declared.name)

        def confirm(result: Plan) -> bool:
            emit.shown = frozenset(result.warnings)
            return json or _paused(progress, lambda: show_and_ask(result))

        report = site.destroy(options, emit, cancel, confirm)
    if not json:
        _print_summary(report, f"provision destroy {inventory}", debug=debug or state(context).debug)
    return report.exit_code


def _removes_nothing(plan: Plan, site: Site, declared: Inventory, *, host: bool) -> bool:
    """Return whether destroy would remove nothing, and print so where that is known."""
    from provision.api.events import is_worth_asking  # noqa: PLC0415 - keep --help fast

    if is_worth_asking(plan):
        return False
    if not any(step.unreached for step in plan.steps):
        sentences = ["There is nothing to remove."]
        if site.keeps_on_hosts() and not host:
            sentences.append("What was set up on machines that stay is still there: --host removes it, too.")
        if any(node.manage for node in declared.nodes.values()):
            sentences.append("What was set up inside nodes stays: destroy does not undo it.")
        say(" ".join(sentences))
    return True


def _refuse_saved_options(inventory: str, given: Mapping[str, object]) -> None:
    """Refuse options that a saved plan has decided already.

    Raises:
        UsageError: one of them was given.
    """
    flags = ", ".join(flag for flag, value in given.items() if value)
    if flags:
        raise usage(
            "PLAN_OPTIONS",
            f"{flags} cannot be given with a saved plan, which is applied as it was made",
            f"make a plan with {flags}: `provision plan {inventory} --out FILE`",
        )


def _paused(progress: Progress, ask: Callable[[], bool]) -> bool:
    """Ask a person while nothing is drawn."""
    progress.pause()
    try:
        return ask()
    finally:
        progress.resume()


def _show_and_ask(result: Plan, *, yes: bool, full: bool) -> bool:
    _print_plan(result, full=full)
    return yes or _yes("Apply this plan?")


def _yes(question: str) -> bool:
    from provision.cli.prompts import yes_or_no  # noqa: PLC0415 - keep --help fast

    return yes_or_no(question)


def _print_plan(result: Plan, *, full: bool) -> None:
    from provision.report.plan import print_plan  # noqa: PLC0415 - keep --help fast

    print_plan(out(), result, full=full)


def _print_summary(report: RunReport, command: str, *, debug: bool) -> None:
    from provision.report.checks import print_checks  # noqa: PLC0415 - keep --help fast
    from provision.report.run_summary import print_summary  # noqa: PLC0415 - keep --help fast
    from provision.verify.model import VerifyReport  # noqa: PLC0415 - keep --help fast

    console = out()
    if isinstance(report.verification, VerifyReport):
        print_checks(console, report.verification.checks, seconds=report.verification.seconds)
        console.print()
    print_summary(console, report, command=command, debug=debug)
