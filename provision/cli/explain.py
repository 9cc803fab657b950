"""Commands that explain and change nothing: graph, explain."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Annotated

import typer

from provision.cli.completion import complete_code
from provision.cli.files import InventoryName
from provision.cli.options import Full, Playbook, Step, Target, run_options
from provision.cli.sites import open_site, read, settle
from provision.cli.state import Debug, out, usage
from provision.cli.watch import watched
from provision.values.diagnostics import Diagnostic
from provision.values.suggestions import nearest

_CODE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
"""What a preflight code looks like."""
_BOTH_WAYS = "name one: `provision explain INVENTORY RESOURCE`, or `provision explain CODE`"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(graph)
    app.command()(explain)


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
        steps = site.steps(run_options(target, step, None))
    print((graph_dot if dot else graph_text)(steps), end="")
    return 0


def explain(
    context: typer.Context,
    inventory: InventoryName,
    resource: Annotated[
        str | None,
        typer.Argument(
            metavar="RESOURCE|CODE",
            help="A key as in events (node-1/ssh:file:/etc/motd), a part of it, or a preflight code.",
            autocompletion=complete_code,
            show_default=False,
        ),
    ] = None,
    full: Full = False,
    debug: Debug = False,  # noqa: ARG001 - its callback does the work
) -> int:
    """Explain a resource, or a preflight code.

    Of a resource it shows who declares it, what was found, what differs, and what the change costs. A code
    needs no inventory: `provision explain CODE`.
    """
    if resource is None and not _CODE.fullmatch(inventory.upper()):
        raise usage("ARGUMENT_MISSING", "a resource or a code is missing", _BOTH_WAYS)
    if resource is None or _CODE.fullmatch(resource):
        return _explain_code((resource or inventory).upper())
    declared = settle(context, inventory)
    with closing(open_site(declared)) as site, watched(context, site, errors=True) as (_, _emit, cancel):
        resources = site.explain(resource, cancel)
    if not resources:
        raise usage(
            "RESOURCE_UNKNOWN",
            f"no resource of {declared.name} has {resource!r} in its key",
            f"A key looks like HOST/ssh:file:/path. See which ones there are: `provision plan {inventory}`",
        )
    from provision.report.explain import print_explained  # noqa: PLC0415 - keep --help fast

    for explained in resources:
        print_explained(out(), explained, full=full)
    return 0


def _explain_code(code: str) -> int:
    """Print when a preflight rule refuses or warns, and what helps.

    Raises:
        UsageError: no rule has the code.
    """
    from provision.api.preflight import rules  # noqa: PLC0415 - keep --help fast

    codes = {name: rule for rule in rules() for name in rule.codes}
    if code not in codes:
        closest = nearest(code, codes)
        remedy = f"did you mean {closest}?" if closest else "docs/preflight.md lists all codes of preflight"
        raise usage("CODE_UNKNOWN", f"no preflight rule has the code {code}", remedy)
    from provision.report.problems import print_diagnostics  # noqa: PLC0415 - keep --help fast

    rule = codes[code]
    others = ", ".join(name for name in rule.codes if name != code)
    evidence = (f"the same rule has {others}",) if others else ()
    example = Diagnostic(
        code, f"when {rule.when}", evidence=evidence, severity=rule.severity, remedy=rule.remedy
    )
    print_diagnostics(out(), [example])
    return 0
