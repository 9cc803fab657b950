"""Options that several commands take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from provision.cli.completion import complete_effect, complete_role, complete_subject
from provision.cli.state import usage
from provision.values.suggestions import known_names

if TYPE_CHECKING:
    from provision.api import Options


def _check_effects(names: list[str] | None) -> list[str] | None:
    """Refuse an effect class that nothing has, before anything begins.

    Raises:
        UsageError: there is no such class.
    """
    from provision.api.domains import effect_classes  # noqa: PLC0415 - keep --help fast

    for name in names or ():
        if name not in effect_classes():
            remedy = known_names(name, effect_classes())
            raise usage("EFFECT_UNKNOWN", f"there is no effect class {name!r}", remedy)
    return names


Target = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="SUBJECT",
        help="Only this subject. Can be repeated.",
        autocompletion=complete_subject,
    ),
]
Step = Annotated[
    list[str] | None,
    typer.Option(
        "--step", metavar="ROLE", help="Only this role. Can be repeated.", autocompletion=complete_role
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="CLASS",
        help="Allow an effect class in this run. Can be repeated.",
        callback=_check_effects,
        autocompletion=complete_effect,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing. Does not allow effects: see --allow.")]
Json = Annotated[bool, typer.Option("--json", help="Print events, one JSON object a line.")]
Full = Annotated[bool, typer.Option("--full", help="Show whole values and contents.")]
Playbook = Annotated[
    str | None,
    typer.Option("--playbook", metavar="NAME|FILE", help="Playbook to run.", show_default="site"),
]
Prune = Annotated[bool, typer.Option("--prune", help="Also remove what left the inventory.")]


def run_options(
    target: list[str] | None,
    step: list[str] | None,
    allow: list[str] | None,
    *,
    prune: bool = False,
    host: bool = False,
    strict: bool = False,
) -> Options:
    """Return the options of the engine for those of the command line."""
    from provision.api import Options  # noqa: PLC0415 - keep --help fast

    return Options(
        targets=tuple(target or ()),
        steps=tuple(step or ()),
        allow=frozenset(allow or ()),
        prune=prune,
        host=host,
        strict=strict,
    )
