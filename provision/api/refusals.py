"""What a run refuses before any system is asked: what is unserved, lacks a value, or cannot be opened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

from provision.api.checks import verified
from provision.api.domains import check_folders, domains
from provision.api.support import unsupported
from provision.contracts.support import CLUSTER
from provision.contracts.system import InventoryValue
from provision.engine.environment import Environment, Options
from provision.engine.model import Step
from provision.inventory import Inventory, unopenable
from provision.inventory.playbook import VERIFY
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError
from provision.values.suggestions import known_names


def check_plan(environment: Environment, options: Options, steps: Iterable[Step]) -> None:
    """Refuse what a plan or an apply of these steps would stumble over later.

    Args:
        environment: the site.
        options: targets and steps that the user chose.
        steps: what follows from them.

    Raises:
        UsageError: with every problem and its position.
    """
    inventory: Inventory = environment.inventory
    chosen = tuple(steps)
    problems = [*inventory.placeholders(), *_not_generated(environment, options, chosen)]
    # What the playbook has no step for is left out, as by --step.
    meant = options.steps or [entry.role for entry in environment.playbook.entries]
    problems += [
        feature.problem(inventory)
        for feature in unsupported(inventory)
        if feature.concerns(options.targets, meant)
    ]
    parts = [
        *_connections(environment, _of_steps(environment, options, chosen)),
        *_contents(environment, chosen),
    ]
    whole = not options.targets and not options.steps
    if whole and any(CLUSTER in entry.on for entry in environment.playbook.entries):
        parts += _sections(inventory)
    if any(step.id.role == VERIFY for step in chosen):
        problems += _skips(inventory)
    _refuse([*problems, *unopenable(inventory, parts)])


def _not_generated(environment: Environment, options: Options, steps: Iterable[Step]) -> list[Diagnostic]:
    """Return a problem for each value to rotate that no role of these steps generates."""
    roles = (environment.roles.get(role) for role in {step.id.role for step in steps})
    generates = (role.generates for role in roles if role is not None and role.generates is not None)
    names = sorted({value.name for declared in generates for value in declared(environment.inventory)})
    remedy = "this inventory uses no generated secrets"
    return [
        Diagnostic(
            "VALUE_UNKNOWN",
            f"no role generates a secret {name!r}",
            remedy=known_names(name, names) or remedy,
        )
        for name in sorted(options.rotate - set(names))
    ]


def check_destroy(environment: Environment, options: Options, steps: Iterable[Step]) -> None:
    """Refuse a removal that cannot reach its systems; what it removes need not be open any more.

    Raises:
        UsageError: with every problem and its position.
    """
    inventory: Inventory = environment.inventory
    parts = _connections(environment, _of_steps(environment, options, steps))
    _refuse([*inventory.placeholders(), *unopenable(inventory, parts)])


def check_verify(environment: Environment, options: Options) -> None:
    """Refuse a verification that cannot reach its systems, or that skips checks which do not exist.

    Raises:
        UsageError: with every problem and its position.
    """
    inventory: Inventory = environment.inventory
    parts = _connections(environment, verified(environment, options.targets))
    _refuse([*_skips(inventory), *unopenable(inventory, parts)])


def _skips(inventory: Inventory) -> list[Diagnostic]:
    """Return a problem for each name in `verify.skip` that no check has: it would skip nothing."""
    if not inventory.verify.skip:
        return []
    from provision.verify.claims import check_names  # noqa: PLC0415 - reads the checks' files

    known = sorted(check_names(check_folders()))
    return [
        Diagnostic(
            "CHECK_UNKNOWN",
            f"verify.skip: there is no check {name}",
            source=inventory.source(("verify", "skip", number)),
            remedy=f"the checks are {', '.join(get_close_matches(name, known, 3, 0.3) or known)}",
        )
        for number, name in enumerate(inventory.verify.skip)
        if name not in known
    ]


def _refuse(problems: list[Diagnostic]) -> None:
    """Raise what was found, in the order of the lines, if anything was."""
    if problems:
        raise UsageError(sorted(problems, key=_place))


def _place(problem: Diagnostic) -> tuple[str, int, int]:
    source = problem.source
    return ("", 0, 0) if source is None else (source.file, source.line, source.column)


def _of_steps(environment: Environment, options: Options, steps: Iterable[Step]) -> set[str]:
    """Return the systems that steps ask."""
    systems: set[str] = set()
    for step in steps:
        if step.id.role == VERIFY:
            systems |= verified(environment, options.targets)
        else:
            systems |= set(environment.roles[step.id.role].questions(environment.inventory, step.subject))
    return systems


def _connections(environment: Environment, systems: Iterable[str]) -> Iterator[InventoryValue]:
    """Yield tokens and keys of systems, and of those that their endpoints follow from."""
    todo, visited = sorted(systems), set[str]()
    while todo:
        spec = environment.systems.get(todo.pop(0))
        if spec is None or spec.name in visited:
            continue
        visited.add(spec.name)
        todo += sorted(spec.questions)
        yield from spec.credentials


def _contents(environment: Environment, steps: Iterable[Step]) -> Iterator[InventoryValue]:
    """Yield what the steps write to hosts: templates and secrets, and the public key of a managed list."""
    for step in steps:
        if step.id.role in environment.roles:
            yield from environment.roles[step.id.role].local_inputs(environment.inventory, step.subject)


def _sections(inventory: Inventory) -> Iterator[InventoryValue]:
    """Yield the sections of the inventory that a run for the whole site, with its cluster, reads."""
    for domain in domains():
        for path in domain.sections:
            value: Any = inventory
            for key in path:
                value = getattr(value, key, None)
            yield path, value
