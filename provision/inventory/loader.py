"""`load`: from a file to a validated inventory, or all of its problems at once."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from provision.inventory.explain import MOST, explain, without
from provision.inventory.lock import LOCK_NAME, read_lock
from provision.inventory.models.host_resources import RESOURCE_KINDS
from provision.inventory.models.inventory import Inventory
from provision.inventory.resolve import resolve
from provision.inventory.rules import check
from provision.inventory.tree import Tree
from provision.inventory.vocabulary import Vocabulary
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError
from provision.values.redaction import Redactor

_ROUNDS = 6
_OWNER = re.compile(r"\b(?:nodes|profiles)\.[^.:\[ ]+")


def load(
    path: Path,
    *,
    vocabulary: Vocabulary,
    overlays: Sequence[Path] = (),
    environ: Mapping[str, str] | None = None,
    redactor: Redactor | None = None,
) -> Inventory:
    """Return the inventory of a file, resolved and validated.

    Args:
        path: the file, as the user typed it.
        vocabulary: names that domains bring.
        overlays: further files that change it, in order.
        environ: values for `${NAME}`; unset, the process's own.
        redactor: learns every secret that is opened; unset, one of the inventory's own.

    Raises:
        UsageError: with every problem that was found, each with its position.
    """
    tree, problems = resolve(path, overlays, os.environ if environ is None else environ)
    if tree is None:
        raise UsageError(_unique(problems))
    inventory, more_problems = _validated(tree, vocabulary)
    problems += more_problems
    lock, more_problems = read_lock(path.parent / LOCK_NAME)
    problems += more_problems
    if inventory is not None:
        problems += check(inventory, tree, vocabulary)
    if problems or inventory is None:
        raise UsageError(_unique(problems))
    digest = hashlib.sha256(_canonical(tree)).hexdigest()
    inventory.attach(tree, str(path), digest, lock, redactor or Redactor(), vocabulary)
    return inventory


def _validated(tree: Tree, vocabulary: Vocabulary) -> tuple[Inventory | None, list[Diagnostic]]:
    """Validate; where that fails, again without what was wrong, so that the other rules see the rest."""
    data = tree.root.plain()
    problems: list[Diagnostic] = []
    for _ in range(_ROUNDS):
        try:
            return Inventory.model_validate(
                data, context={RESOURCE_KINDS: vocabulary.resource_kinds}
            ), problems
        except ValidationError as error:
            explained = explain(error, tree, Inventory)
        problems += [problem for _, problem in explained if problem is not None]
        if len(explained) >= MOST:
            break
        for path, _ in sorted(explained, key=lambda item: len(item[0])):
            data = without(data, path)
    return None, problems


def _unique(problems: list[Diagnostic]) -> list[Diagnostic]:
    """Drop repetitions (a profile's error shows in all of its nodes) and order by position."""
    first_of: dict[tuple[object, ...], Diagnostic] = {}
    for problem in problems:
        summary = problem.summary if problem.source is None else _OWNER.sub("", problem.summary)
        first_of.setdefault((problem.code, problem.source, summary), problem)
    ordered_problems = sorted(_redacted(first_of.values()), key=_position)
    if len(ordered_problems) > MOST:
        summary = f"and {len(ordered_problems) - MOST} more problems, not shown"
        ordered_problems[MOST:] = [Diagnostic("INVENTORY_MORE", summary)]
    return ordered_problems


def _redacted(problems: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Show no line in which a secret was written in plain, whatever else is wrong with it."""
    all_problems = list(problems)
    hidden = {
        (problem.source.file, problem.source.line)
        for problem in all_problems
        if problem.source is not None and problem.code == "INVENTORY_SECRET"
    }
    return [
        replace(problem, source=replace(problem.source, text=""))
        if problem.source is not None and (problem.source.file, problem.source.line) in hidden
        else problem
        for problem in all_problems
    ]


def _position(problem: Diagnostic) -> tuple[str, int, int]:
    source = problem.source
    return ("", 0, 0) if source is None else (source.file, source.line, source.column)


def _canonical(tree: Tree) -> bytes:
    def plain(value: Any) -> Any:
        return repr(value)

    return json.dumps(tree.root.plain(), sort_keys=True, default=plain, separators=(",", ":")).encode()
