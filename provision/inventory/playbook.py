"""A playbook: which roles, on which subjects, in which order; no logic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError

VERIFY = "verify"
ALL = "all"
EACH = "each"
"""Beside a role: verify before the first subject, and after each one that was changed."""
_KEYS = frozenset({"role", "verify", "on", "after", "serial", "stop_on_failure", "gate", "way_back"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a playbook.

    Args:
        role: name of the role; `verify` for the verification.
        on: selectors.
        after: roles whose steps must have ended before.
        serial: how many subjects at a time, 0 for all.
        gate: a question to a person, or empty.
        stop_on_failure: whether the remaining subjects are blocked when one of them failed.
        verify_each: whether the site is verified before the first subject and after each one.
        way_back: what a person reads where such a verification fails, or empty.
        checks: verification: the domains whose checks are run, or empty for all.
    """

    role: str
    on: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    serial: int = 0
    gate: str = ""
    stop_on_failure: bool = False
    verify_each: bool = False
    way_back: str = ""
    checks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Playbook:
    """Which roles, on which subjects, in which order."""

    name: str
    entries: tuple[Entry, ...]
    description: str = ""


def parse_playbook(data: Any, file: str) -> Playbook:
    """Return a playbook from its YAML as plain values.

    Raises:
        UsageError: unknown keys or wrong types, all at once.
    """
    problems: list[str] = []
    entries: list[Entry] = []
    if not isinstance(data, dict) or not isinstance(data.get("steps"), list):
        raise UsageError(
            Diagnostic("PLAYBOOK_WRONG", f"{file}: a playbook is a mapping with `name` and `steps`")
        )
    problems += [f"unknown key {key!r}" for key in data if key not in {"name", "description", "steps"}]
    for number, line in enumerate(data["steps"], 1):
        try:
            entries.append(_entry(line))
        except ValueError as error:
            problems.append(f"step {number}: {error}")
    known = {entry.role for entry in entries}
    problems += [
        f"{entry.role}: `after` names {name!r}, which is not a step of this playbook"
        for entry in entries
        for name in entry.after
        if name not in known
    ]
    if problems:
        raise UsageError([Diagnostic("PLAYBOOK_WRONG", f"{file}: {problem}") for problem in problems])
    return Playbook(str(data.get("name", file)), tuple(entries), str(data.get("description", "")))


def _entry(line: Any) -> Entry:
    if not isinstance(line, dict):
        raise ValueError("expected { role: NAME, on: SELECTOR }")  # noqa: TRY004 - all problems are collected
    unknown = sorted(str(key) for key in line if key not in _KEYS)
    if unknown:
        raise ValueError(f"unknown key {', '.join(unknown)}; a step has {', '.join(sorted(_KEYS))}")
    verify_each = line.get("verify") == EACH and "role" in line
    if ("role" in line) == ("verify" in line) and not verify_each:
        raise ValueError("expected either `role` or `verify`; with a role, `verify: each` is possible")
    serial = _serial(line)
    gate = line.get("gate", "")
    if not isinstance(gate, str):
        raise ValueError("`gate` is a question")  # noqa: TRY004 - all problems are collected as one kind
    stop_on_failure = _flag(line, "stop_on_failure")
    if stop_on_failure and not serial:
        raise ValueError("`stop_on_failure` needs `serial`: steps that run at once cannot stop each other")
    way_back = _way_back(line, verify_each=verify_each)
    if verify_each and not (stop_on_failure and serial == 1):
        raise ValueError("`verify: each` needs `serial: 1` and `stop_on_failure: true`")
    if "verify" in line and not verify_each:
        checks = _names(line, "verify")
        return Entry(VERIFY, (), _names(line, "after"), 0, gate, checks=() if checks == (ALL,) else checks)
    if not isinstance(line["role"], str) or "on" not in line:
        raise ValueError("`role` is a name and `on` a selector or a list of them")
    selectors, after = _names(line, "on"), _names(line, "after")
    careful = (stop_on_failure, verify_each, way_back)
    return Entry(str(line["role"]), selectors, after, serial, gate, *careful)


def _serial(line: dict[str, Any]) -> int:
    serial = str(line.get("serial", 0))
    if not (serial.isascii() and serial.isdigit()):
        raise ValueError("`serial` is a whole number")
    return int(serial)


def _way_back(line: dict[str, Any], *, verify_each: bool) -> str:
    text = line.get("way_back", "")
    if not isinstance(text, str) or (text and not verify_each):
        raise ValueError("`way_back` must be text, and needs `verify: each`")
    return text


def _flag(line: dict[str, Any], key: str) -> bool:
    value = str(line.get(key, False)).lower()  # playbooks are read with every scalar as text
    if value not in {"true", "false"}:
        raise ValueError(f"`{key}` is true or false")
    return value == "true"


def _names(line: dict[str, Any], key: str) -> tuple[str, ...]:
    value = line.get(key, ())
    names = (value,) if isinstance(value, str) else tuple(value)
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"`{key}` is a name or a list of names")
    return tuple(str(name) for name in names)
