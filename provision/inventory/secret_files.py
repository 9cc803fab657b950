"""What plan opens and validate does not: secrets, and files of the controller."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from provision.inventory.models.inventory import Inventory
from provision.inventory.secrets import Secret
from provision.inventory.tree import KeyPath
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError
from provision.values.redaction import Redactor

_LATER = frozenset({"known_hosts"})
"""Files that may be missing."""
_FOLDERS = frozenset({"bundle"})
"""What may be a folder, too."""


def unopenable(inventory: Inventory, parts: Iterable[tuple[KeyPath, Any]]) -> list[Diagnostic]:
    """Open secrets and look at files of the controller; return a problem for each that cannot be had.

    Args:
        inventory: knows where each was written.
        parts: what is needed, with its path: models, lists of them, single secrets and files.
    """
    problems: list[Diagnostic] = []
    known: set[object] = set()
    lists: set[int] = set()
    for path, part in parts:
        for where, value in _leaves(part, path, lists):
            same = (value.kind, value.reference) if isinstance(value, Secret) else value
            if same in known:
                continue
            known.add(same)
            if isinstance(value, Secret):
                problems += _secret(value, inventory.redactor)
            else:
                problems += _file(inventory, where, value)
    return problems


def open_at_hand(inventory: Inventory) -> None:
    """Open every secret that can be had without asking anybody, so that all output is masked of it.

    It may stand in any system's answers, whoever it is for. What cannot be had is left: whoever needs it says
    so. A command is left, too: it may ask a person, and what needs its secret runs it.
    """
    opened: set[object] = set()
    for _, value in _leaves(inventory, (), set()):
        if isinstance(value, Secret) and value.reference not in opened:
            opened.add(value.reference)
            with suppress(UsageError, OSError):
                # A pipe would be waited for.
                is_at_hand = value.kind == "file" and Path(value.reference[0]).is_file()
                if value.kind == "env" or is_at_hand:
                    value.open(inventory.redactor)


def _secret(secret: Secret, redactor: Redactor) -> tuple[Diagnostic, ...]:
    try:
        secret.open(redactor)
    except UsageError as error:
        return error.diagnostics
    return ()


def _reason(file: Path, *, is_folder: bool) -> str:
    """Return why a file cannot be read; empty if it can."""
    try:
        mode = file.stat().st_mode
    except OSError as error:
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        return "does not exist" if missing else f"cannot be read: {error.strerror}"
    if not stat.S_ISREG(mode) and not is_folder:
        return "is not a file"
    return "" if os.access(file, os.R_OK) else "cannot be read"


def _file(inventory: Inventory, path: KeyPath, file: Path) -> tuple[Diagnostic, ...]:
    what = str(path[-1])
    if what in _LATER:
        return ()
    reason = _reason(file, is_folder=what in _FOLDERS)
    if not reason:
        return ()
    remedy = "correct the name, or create the file"
    if what == "key":
        remedy = f"correct the name, or create a key: `ssh-keygen -t ed25519 -f {file}`"
    elif file.suffix == ".pub":
        remedy = f"create it from the private key: `ssh-keygen -y -f {file.with_suffix('')} > {file}`"
    subject = str(path[1]) if path[0] in ("nodes", "hypervisors") else ""
    summary = f"the file {file} {reason}"
    source = inventory.source(path)
    return (Diagnostic("FILE_UNREADABLE", summary, subject, source=source, remedy=remedy),)


_WALKED = (BaseModel, dict, tuple, Secret, Path)


def _leaves(value: Any, path: KeyPath, visited: set[int]) -> Iterator[tuple[KeyPath, Secret | Path]]:
    """Walk the declared values; lists that nodes share through a profile are walked once."""
    children: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, BaseModel):
        children = vars(value).items()
    elif isinstance(value, dict):
        children = value.items()
    elif isinstance(value, tuple) and value and id(value) not in visited:
        visited.add(id(value))
        children = enumerate(value)
    elif isinstance(value, Secret | Path):
        yield path, value
    for key, child in children:
        if isinstance(child, _WALKED):  # most values are plain
            yield from _leaves(child, (*path, key), visited)
