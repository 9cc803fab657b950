"""What plan opens and validate does not: secrets, and files of the controller."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from provision.inventory.models.inventory import Inventory, Key
from provision.inventory.secrets import Secret
from provision.values.diagnostics import Diagnostic

_MAY_BE_MISSING = frozenset({"known_hosts"})


def secrets_of(inventory: Inventory) -> tuple[Secret, ...]:
    """Return every secret reference of an inventory, each once, in the order of the models."""
    found = [value for _, value in _leaves(inventory, (), set()) if isinstance(value, Secret)]
    return tuple({id(each): each for each in found}.values())


def unreadable_files(inventory: Inventory) -> list[Diagnostic]:
    """Return a problem for each named file of the controller that cannot be read: keys, templates, charts."""
    problems = []
    seen: set[Path] = set()
    for path, value in _leaves(inventory, (), set()):
        if not isinstance(value, Path) or value in seen or path[-1] in _MAY_BE_MISSING:
            continue
        seen.add(value)
        if not os.access(value, os.R_OK):
            reason = "cannot be read" if value.exists() else "does not exist"
            problems.append(
                Diagnostic("FILE_UNREADABLE", f"the file {value} {reason}", source=inventory.source(path))
            )
    return problems


def _leaves(value: Any, path: Key, seen: set[int]) -> Iterator[tuple[Key, Any]]:
    """Walk the declared values; lists that nodes share through a profile are walked once."""
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _leaves(getattr(value, name), (*path, name), seen)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, key), seen)
    elif isinstance(value, tuple):
        if value and id(value) in seen:
            return
        seen.add(id(value))
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index), seen)
    elif isinstance(value, Secret | Path):
        yield path, value
