"""Commands that look at the site or change it: plan, apply, verify, destroy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from provision.cli.files import InventoryName, check_writable, write_file, writing
from provision.cli.interrupts import interrupts
from provision.cli.names import complete_inventory, saved_plan
from provision.cli.sites import open_site, read, settle
from provision.cli.state import Debug, State, on_terminal, out, state, usage
from provision.contracts import common_effects
from provision.values.cancel import Cancel
from provision.values.consent import Consent
from provision.values.outcomes import ExitCode, Outcome

if TYPE_CHECKING:
    from provision.api import Options
    from provision.engine.model import Plan, RunReport
    from provision.inventory import Inventory
    from provision.report.progress import Progress
    from provision.values.events import Event

Target = Annotated[
    list[str] | None, typer.Option("--target", metavar="SUBJECT", help="Only this subject; may be repeated.")
]
Step = Annotated[
    list[str] | None, typer.Option("--step", metavar="ROLE", help="Only this role; may be repeated.")
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow", metavar="CLASS", help="Consent to an effect class for this run; may be repeated."
    ),
]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Ask nothing. Is no consent for effects: see --allow.")
]
Json = Annotated[bool, typer.Option("--json", help="Print events, one JSON object a line.")]
Full = Annotated[bool, typer.Option("--full", help="Show whole values and contents.")]
Playbook = Annotated[
    str | None,
    typer.Option("--playbook", metavar="NAME|FILE", help="Playbook to run.", show_default="site"),
]
Prune = Annotated[bool, typer.Option("--prune", help="Also remove what left the inventory.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(plan)
    app.command()(apply)
    app.command()(verify)
    app.command()(destroy)
    app.command()(graph)
    app.command()(explain)


@dataclass(slots=True)
class _Watch:
    """Stands between engine and renderer: remembers the journal, and ends the run early with --fail-fast."""

    show: Callable[[Event], None]
    state: State
    cancel: Cancel
    fail_fast: bool = False
    failed_fast: bool = field(default=False, init=False)

    def __call__(self, event: Event) -> None:
        from provision.values.events import RunStarted, StepEnded  # noqa: PLC0415 - keep --help fast

        if isinstance(event, RunStarted):
            self.state.journal = event.journal
        self.show(event)
        if self.fail_fast and isinstance(event, StepEnded) and event.outcome == Outcome.FAILED:
            self.failed_fast = not self.cancel.draining
            self.cancel.drain()


def _unsaid(emit: _Watch) -> Callable[[Event], None]:
    """Keep a plan's problems out of its progress: the plan itself shows them."""
    from provision.values.events import Problem  # noqa: PLC0415 - keep --help fast

    return lambda event: None if isinstance(event, Problem) else emit(event)


@contextmanager
def _watched(
    context: typer.Context, *, json: bool = False, errors: bool = False, fail_fast: bool = False
) -> Iterator[tuple[Progress, _Watch, Cancel]]:
    """Show progress and obey signals while the block runs.

    Args:
        context: of the command.
        json: events on standard output and nothing else.
        errors: progress on standard error, because standard output is for the result.
        fail_fast: the first failed step ends the run.
    """
    from provision.report.progress import JsonLines, LiveProgress, PlainProgress  # noqa: PLC0415 - keep --help fast
    from provision.report.style import make_console  # noqa: PLC0415 - keep --help fast

    cancel = Cancel()
    console = make_console(sys.stderr if errors else sys.stdout)
    progress: Progress
    if json:
        progress = JsonLines(sys.stdout, sys.stderr)
    elif console.is_terminal and not console.is_dumb_terminal:
        progress = LiveProgress(console)
    else:
        progress = PlainProgress(console)
    watch = _Watch(progress, state(context), cancel, fail_fast)
    with progress, interrupts(cancel, progress.notice):
        yield progress, watch, cancel


def plan(
    context: typer.Context,
    inventory: InventoryName,
    detailed: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit 2 when there are changes, for drift checks.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Save the plan, for `provision apply FILE`.")
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
    found = settle(context, inventory)
    options = _options(target, step, allow, prune=prune)
    from provision.api import plan_code  # noqa: PLC0415 - keep --help fast

    with closing(open_site(found, playbook)) as site:
        with _watched(context, json=json, errors=not json) as (_, emit, cancel):
            result = site.plan(options, emit if json else _unsaid(emit), cancel, detailed=detailed)
        if not json:
            _print_plan(result, full=full)
        if output is not None and not result.refusals:
            with writing(output):
                site.save(result, output)
            if not json:
                out().print(f"Saved: provision apply {output}", soft_wrap=True)
    return int(plan_code(result, detailed=detailed))


def apply(
    context: typer.Context,
    inventory: Annotated[
        str,
        typer.Argument(
            metavar="INVENTORY|PLAN",
            help="Inventory, or a plan that `plan --out` saved.",
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
        bool, typer.Option("--fail-fast", help="The first failed step ends the run; what runs ends first.")
    ] = False,
    debug: Debug = False,
) -> int:
    """Make the site what the inventory says. Starts the lab if the inventory declares one."""
    asked = on_terminal() and not json
    if not yes and not asked:
        raise usage(
            "CONFIRMATION_MISSING", "there is no terminal to ask on, and nothing was confirmed", "give --yes"
        )
    name, saved, promised = saved_plan(inventory)
    if saved is not None:
        _refuse_promised(name, {"--target": target, "--step": step, "--playbook": playbook, "--prune": prune})
    found = settle(context, name, start_lab=True)
    options = _options(target, step, allow, prune=prune)

    with (
        closing(open_site(found, promised or playbook)) as site,
        _watched(context, json=json, fail_fast=fail_fast) as (progress, emit, cancel),
    ):

        def confirm(result: Plan) -> bool:
            if json:
                return yes
            progress.pause()
            try:
                _print_plan(result, full=full)
                return yes or _yes("Apply this plan?")
            finally:
                progress.resume()

        def ask(question: str) -> bool | None:
            if yes or not asked:
                return None
            progress.pause()
            try:
                return _yes(question)
            finally:
                progress.resume()

        report = site.apply(None, options, emit, cancel, confirm, ask=ask, saved=saved)
    if emit.failed_fast and report.exit_code == ExitCode.INTERRUPTED:
        report = replace(report, interrupted=False, exit_code=int(ExitCode.ERROR))
    if not json:
        command = "provision apply " + (inventory if saved is None else _goes_on(report, inventory, name))
        _print_summary(report, command, debug=debug or state(context).debug)
    return report.exit_code


def verify(
    context: typer.Context,
    inventory: InventoryName,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 7 when a check is unknown.")] = False,
    target: Target = None,
    json: Json = False,
    full: Full = False,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Prove the site by checks of its own, on fresh answers. Changes nothing."""
    check_writable(junit)
    found = settle(context, inventory)
    strict = strict or found.verify.strict
    options = _options(target, None, None, strict=strict)
    with (
        closing(open_site(found)) as site,
        _watched(context, json=json, errors=not json) as (_, emit, cancel),
    ):
        report = site.verify(options, emit, cancel)
    if junit is not None:
        from provision.report.junit import junit_xml  # noqa: PLC0415 - keep --help fast

        write_file(junit, junit_xml(found.name, report.checks, report.seconds))
    if not json:
        from provision.report.checks import print_checks  # noqa: PLC0415 - keep --help fast

        print_checks(out(), report.checks, seconds=report.seconds, full=full)
    return int(report.exit_code(strict=strict))


def destroy(
    context: typer.Context,
    inventory: InventoryName,
    yes: Yes = False,
    allow: Allow = None,
    host: Annotated[
        bool, typer.Option("--host", help="Also remove the files made on the hypervisor.")
    ] = False,
    json: Json = False,
    full: Full = False,
    debug: Debug = False,
) -> int:
    """Remove what apply made, and nothing else. Asks for the inventory's name."""
    declared = read(inventory)
    asked = on_terminal() and not json
    delete = common_effects.DELETE.name
    agreed = delete in (allow or []) or declared.consent(delete) is Consent.ALLOW
    if not (yes and agreed) and not asked:
        flags = "--yes" if agreed else "--yes --allow delete"
        raise usage(
            "CONFIRMATION_MISSING",
            "destroy removes machines and their data, and nobody can be asked",
            f"give {flags}",
        )
    found = settle(context, inventory)
    options = _options(None, None, allow, host=host)
    with (
        closing(open_site(found)) as site,
        _watched(context, json=json) as (progress, emit, cancel),
    ):

        def confirm(result: Plan) -> bool:
            if json:
                return True
            progress.pause()
            try:
                _print_plan(result, full=full)
                if (yes and agreed) or _removes_nothing(result, found, host=host):
                    return True
                from provision.cli.prompts import exactly  # noqa: PLC0415 - keep --help fast

                return exactly("This removes machines and their data.", found.name)
            finally:
                progress.resume()

        report = site.destroy(options, emit, cancel, confirm)
    if not json:
        _print_summary(report, f"provision destroy {inventory}", debug=debug or state(context).debug)
    return report.exit_code


def _removes_nothing(plan: Plan, inventory: Inventory, *, host: bool) -> bool:
    """Tell whether destroy would remove nothing, and say so where that is known."""
    from provision.api.events import is_worth_asking  # noqa: PLC0415 - keep --help fast

    if is_worth_asking(plan):
        return False
    if not any(step.unreached for step in plan.steps):
        told = ["There is nothing to remove."]
        if inventory.hypervisors and not host:
            told.append("Images and files on hypervisors stay: --host removes those, too.")
        if any(node.manage for node in inventory.nodes.values()):
            told.append("What was set up inside nodes stays: destroy does not undo it.")
        out().print(*told, soft_wrap=True)
    return True


def graph(
    inventory: InventoryName,
    dot: Annotated[bool, typer.Option("--dot", help="Graphviz's language, for `dot -Tsvg`.")] = False,
    playbook: Playbook = None,
    target: Target = None,
    step: Step = None,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Show the steps in their order, and what each waits for. Asks no system."""
    from provision.report.graph import graph_dot, graph_text  # noqa: PLC0415 - keep --help fast

    with closing(open_site(read(inventory), playbook)) as site:
        steps = site.steps(_options(target, step, None))
    print((graph_dot if dot else graph_text)(steps), end="")
    return 0


def explain(
    context: typer.Context,
    inventory: InventoryName,
    resource: Annotated[
        str,
        typer.Argument(
            metavar="RESOURCE", help="Key as in events (vm-1/ssh:file:/etc/motd), or a part of it."
        ),
    ],
    full: Full = False,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Explain a resource: who declares it, what was answered, what differs, what mending it costs."""
    found = settle(context, inventory)
    with closing(open_site(found)) as site, _watched(context, errors=True) as (_, _emit, cancel):
        known = site.explain(resource, cancel)
    if not known:
        raise usage(
            "RESOURCE_UNKNOWN",
            f"no resource of {found.name} has {resource!r} in its key now",
            "provision plan shows what is not known yet; keys look like NODE/ssh:file:/path",
        )
    from provision.report.explain import print_explained  # noqa: PLC0415 - keep --help fast

    for each in known:
        print_explained(out(), each, full=full)
    return 0


def _refuse_promised(inventory: str, given: Mapping[str, object]) -> None:
    """Refuse options that a saved plan has decided already.

    Raises:
        UsageError: one of them was given.
    """
    named = [flag for flag, value in given.items() if value]
    if named:
        raise usage(
            "PLAN_OPTIONS",
            f"a saved plan is applied as it was made: {', '.join(named)} cannot be given now",
            f"give {', '.join(named)} to: provision plan {inventory} --out FILE",
        )


def _goes_on(report: RunReport, plan: str, inventory: str) -> str:
    """Return what the next command is about: the plan while nothing was done, else its inventory.

    Once something was done the saved plan is stale by its own work.
    """
    return inventory if report.steps else plan


def _options(
    target: list[str] | None,
    step: list[str] | None,
    allow: list[str] | None,
    *,
    prune: bool = False,
    host: bool = False,
    strict: bool = False,
) -> Options:
    from provision.api import Options  # noqa: PLC0415 - keep --help fast

    return Options(
        targets=tuple(target or ()),
        steps=tuple(step or ()),
        allow=frozenset(allow or ()),
        prune=prune,
        host=host,
        strict=strict,
    )


def _yes(question: str) -> bool:
    from provision.cli.prompts import yes_or_no  # noqa: PLC0415 - keep --help fast

    return yes_or_no(question)


def _print_plan(result: Plan, *, full: bool) -> None:
    from provision.report.plan import print_plan  # noqa: PLC0415 - keep --help fast

    print_plan(out(), result, full=full)


def _print_summary(report: RunReport, command: str, *, debug: bool) -> None:
    from provision.report.checks import print_checks  # noqa: PLC0415 - keep --help fast
    from provision.report.summary import print_summary  # noqa: PLC0415 - keep --help fast
    from provision.verify.model import VerifyReport  # noqa: PLC0415 - keep --help fast

    console = out()
    if isinstance(report.verification, VerifyReport):
        print_checks(console, report.verification.checks, seconds=report.verification.seconds)
        console.print()
    print_summary(console, report, command=command, debug=debug)
