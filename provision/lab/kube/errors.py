"""Refusals, as the API words them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from provision.lab.kube.kinds import Kind

Cause = tuple[str, str, str]
"""Reason, message and field of one invalid value."""


class StatusError(Exception):
    """An answer of kind Status.

    Args:
        code: HTTP status.
        reason: as in `NotFound`; empty where the server gives none.
        message: for people.
        details: name, group, kind and causes.
    """

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
        }
        if reason:
            self.body["reason"] = reason
        if details is not None:
            self.body["details"] = details
        self.body["code"] = code


def about(kind: Kind, name: str, causes: Sequence[Cause] = (), *, plural: bool = True) -> dict[str, Any]:
    """Return the details of a refusal."""
    details: dict[str, Any] = {"name": name}
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.plural if plural else kind.name
    if causes:
        details["causes"] = [
            {"reason": reason, "message": message, "field": field} for reason, message, field in causes
        ]
    return details


def not_found(kind: Kind, name: str) -> StatusError:
    """There is no such object."""
    return StatusError(404, "NotFound", f'{kind.resource} "{name}" not found', about(kind, name))


def modified(kind: Kind, name: str) -> StatusError:
    """Somebody changed the object in the meantime."""
    text = (
        f'Operation cannot be fulfilled on {kind.resource} "{name}": the object has been modified;'
        " please apply your changes to the latest version and try again"
    )
    return StatusError(409, "Conflict", text, about(kind, name))


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> StatusError:
    """Values are not valid."""
    texts = [f"{field}: {message}" for _, message, field in causes]
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = about(kind, name, causes, plural=False)
    return StatusError(422, "Invalid", f'{kind.qualified} "{name}" is invalid: {joined}', details)


def bad_request(message: str) -> StatusError:
    """The request cannot be read."""
    return StatusError(400, "BadRequest", message)
