"""Shell completion: inventories, and the names in the inventory, journal and rules that the line is about.

Each function returns what may follow at the cursor. What is wrong on the line (an inventory that does not
load) completes to nothing: a message would end up in the middle of what the user types.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from provision.cli.names import SUFFIXES, find_inventory, saved_plan, shipped

if TYPE_CHECKING:
    from provision.api import Site

RECENT_RUNS = 50
"""Runs that are offered."""


def complete_inventory(incomplete: str) -> list[str]:
    """Return inventory files and folders in reach, then the shipped inventories."""
    parent = Path(incomplete).parent if incomplete else Path()
    names: list[str] = []
    with contextlib.suppress(OSError):
        paths = [path for path in sorted(parent.iterdir()) if path.suffix in SUFFIXES[1:] or path.is_dir()]
        names = [f"{path}/" if path.is_dir() else str(path) for path in paths]
    return _starting([*names, *shipped()], incomplete)


def complete_subject(context: typer.Context, incomplete: str) -> list[str]:
    """Return the subjects of the steps of the inventory on the line: nodes, their hosts, the cluster."""
    names = _of_site(
        context, lambda site: [step.id.subject for step in site.steps() if step.id.role != "verify"]
    )
    return _starting(names, incomplete)


def complete_role(context: typer.Context, incomplete: str) -> list[str]:
    """Return the roles of the steps of the inventory on the line."""
    return _starting(_of_site(context, lambda site: [step.id.role for step in site.steps()]), incomplete)


def complete_node(context: typer.Context, incomplete: str) -> list[str]:
    """Return the nodes of the inventory on the line."""
    return _starting(_of_site(context, lambda site: site.inventory.nodes), incomplete)


def complete_host(context: typer.Context, incomplete: str) -> list[str]:
    """Return all hosts of the inventory on the line that can be reached by SSH."""
    names = [name.removesuffix("/ssh") for name in _systems(context)]
    return _starting(names, incomplete)


def complete_system(context: typer.Context, incomplete: str) -> list[str]:
    """Return all systems of the inventory on the line that have an SSH host key."""
    return _starting(_systems(context), incomplete)


def complete_image(context: typer.Context, incomplete: str) -> list[str]:
    """Return the images of the inventory on the line."""
    return _starting(_of_site(context, lambda site: site.inventory.images), incomplete)


def complete_effect(incomplete: str) -> list[str]:
    """Return the effect classes."""
    from provision.api.domains import effect_classes  # noqa: PLC0415 - keep --help fast

    return _starting(effect_classes(), incomplete)


def complete_run(incomplete: str) -> list[str]:
    """Return `last` and the ids of recent runs, the latest first."""
    from provision.api import state_folder  # noqa: PLC0415 - keep --help fast
    from provision.api.past_runs import runs  # noqa: PLC0415 - keep --help fast

    ids = [row["id"] for row in runs(state_folder() / "journal.sqlite", RECENT_RUNS)]
    return _starting(["last", *ids] if ids else [], incomplete)


def complete_code(incomplete: str) -> list[str]:
    """Return the preflight codes, once the word looks like one."""
    if not incomplete or not incomplete.isupper():
        return []
    from provision.api.preflight import rules  # noqa: PLC0415 - keep --help fast

    return _starting((code for rule in rules() for code in rule.codes), incomplete)


def _systems(context: typer.Context) -> Iterable[str]:
    return [
        name for name in _of_site(context, lambda site: site.environment.systems) if not name.endswith("/api")
    ]


def _of_site(context: typer.Context, names: Callable[[Site], Iterable[str]]) -> list[str]:
    """Return names of the site whose inventory, and playbook, stand on the line; none if they are wrong."""
    # While an option lacks its value, the parser leaves the arguments as they are.
    given = context.params.get("inventory") or next(iter(context.args), None)
    if not isinstance(given, str):
        return []
    from provision.api import load  # noqa: PLC0415 - keep --help fast
    from provision.values.errors import ProvisionError  # noqa: PLC0415 - keep --help fast

    with contextlib.suppress(ProvisionError, OSError):
        name, _, playbook = saved_plan(given)
        playbook = playbook or context.params.get("playbook")
        with closing(load(find_inventory(name), playbook=playbook)) as site:
            return list(names(site))
    return []


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]
