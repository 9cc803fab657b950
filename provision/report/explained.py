"""What is known of one resource: who declares it, what was answered, what differs, what the change costs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from provision.contracts.change import Key
from provision.contracts.query import Unknown, is_secret
from provision.contracts.snapshot import Snapshot
from provision.engine.model import PlannedChange, StepId
from provision.engine.step_state import StepState
from provision.values.diagnostics import Source

LONGEST = 3
"""Fields of the longest record whose empty ones are shown, too."""
_CAMEL_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")
_DIGEST = re.compile(r"[0-9a-f]{40,}")


@dataclass(frozen=True, slots=True)
class Explained:
    """One resource.

    Args:
        key: its identity.
        step: whose it is.
        source: inventory line, if there is one.
        answers: question and answer, as text; those about secrets only named.
        unknown: why something is unknown, or empty.
        planned: what differs, or None when it is as declared.
    """

    key: Key
    step: StepId
    source: Source | None
    answers: tuple[tuple[str, str], ...]
    unknown: str
    planned: PlannedChange | None


def explained(
    steps: Mapping[StepId, StepState], snapshots: Mapping[str, Snapshot], text: str
) -> Iterator[Explained]:
    """Yield what is known of the resources whose key is a text, else of those whose key contains it.

    Args:
        steps: the steps of a plan.
        snapshots: the answers that it rests on, by system.
        text: a key (`node-1/ssh:file:/etc/motd`) or a part of one.
    """
    every = [(name, step, resource) for name, step in steps.items() for resource in step.resources]
    exact = [row for row in every if str(row[2].key) == text]
    for name, step, resource in exact or [row for row in every if text in str(row[2].key)]:
        snapshot = snapshots.get(resource.key.system, Snapshot(resource.key.system))
        answers = [(query, snapshot[query]) for query in resource.queries() if query in snapshot]
        reasons = [answer.reason for _, answer in answers if isinstance(answer, Unknown)]
        yield Explained(
            resource.key,
            name,
            resource.source,
            tuple(_words(query, answer) for query, answer in answers),
            "; ".join(reasons),
            next((change for change in step.plan.changes if change.key == resource.key), None),
        )


def _words(query: Any, answer: Any) -> tuple[str, str]:
    if is_secret(query):
        return ("content of a secret", "(secret)")
    return (query_text(query), answer_text(answer))


def query_text(query: Any) -> str:
    """Return a query in plain words: `FileState(path="/etc/motd")` is "file state of /etc/motd"."""
    if not is_dataclass(query):
        return answer_text(query)
    name = _CAMEL_CASE.sub(" ", type(query).__name__).lower()
    values = [answer_text(value) for _, value in _telling_fields(query, longest=0)]
    return f"{name} of {', '.join(values)}" if values else name


def answer_text(answer: Any) -> str:  # noqa: PLR0911 - one return a type reads best
    """Return an answer in plain words: of a long record, what is empty or only a digest is left out."""
    if answer is None or answer == "":
        return "none"
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    if isinstance(answer, bytes):
        return answer.decode("utf-8", "replace").strip() or "(empty)"
    if isinstance(answer, Unknown):
        return f"unknown: {answer.reason}"
    if is_dataclass(answer) and not isinstance(answer, type):
        parts = [f"{name.replace('_', ' ')} {answer_text(value)}" for name, value in _telling_fields(answer)]
        return ", ".join(parts) or "(empty)"
    if isinstance(answer, Mapping):
        return ", ".join(f"{name} {answer_text(value)}" for name, value in answer.items()) or "(nothing)"
    if isinstance(answer, tuple | list | set | frozenset):
        return "; ".join(answer_text(item) for item in answer) or "(nothing)"
    return str(answer)


def _telling_fields(value: Any, longest: int = LONGEST) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a record that tell a person something; all of one that is not longer than that."""
    names = [field.name for field in fields(value)]
    for name in names:
        content = getattr(value, name)
        is_empty = content in ("", b"", None, (), frozenset()) and len(names) > longest
        if not is_empty and not _DIGEST.fullmatch(str(content)):
            yield name, content
