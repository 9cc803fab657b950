"""The JSON Schema of the event stream, made from the event classes: the published contract of `--json`."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, get_args, get_origin, get_type_hints

from provision.values import events
from provision.values.diagnostics import Severity

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}
_STRINGS = {"type": "array", "items": {"type": "string"}}
DIAGNOSTIC: dict[str, object] = {
    "type": "object",
    "description": "A problem: what it is, its subject, the evidence, and what to do next.",
    "required": ["code", "severity", "subject", "summary", "evidence", "untouched", "remedy", "source"],
    "properties": {
        "code": {"type": "string", "pattern": "^[A-Z][A-Z0-9_]*$"},
        "severity": {"enum": list(map(str, Severity))},
        "subject": {"type": "string"},
        "summary": {"type": "string"},
        "evidence": _STRINGS,
        "untouched": {"type": "string"},
        "remedy": {"type": "string"},
        "source": {
            "type": ["object", "null"],
            "required": ["file", "line", "column", "text"],
            "properties": {
                "file": {"type": "string"},
                "line": {"type": "integer", "minimum": 1},
                "column": {"type": "integer", "minimum": 1},
                "text": {"type": "string"},
            },
        },
    },
}


def event_classes() -> tuple[type[events.Event], ...]:
    """Return all event classes, in the order of their definition."""
    return tuple(
        var
        for var in vars(events).values()
        if isinstance(var, type) and issubclass(var, events.Event) and var is not events.Event
    )


def event_schema() -> dict[str, Any]:
    """Return the schema of one line of `--json`.

    New event types and new fields may come; readers ignore what they do not know. Fields are neither removed
    nor given another meaning.
    """
    return {
        "$schema": DIALECT,
        "title": "provision event",
        "description": "One line of the output of --json. Ignore types and fields that you do not know.",
        "oneOf": [{"$ref": f"#/$defs/{event_class.type}"} for event_class in event_classes()],
        "$defs": {event_class.type: _of_class(event_class) for event_class in event_classes()},
    }


def _of_class(cls: type[events.Event]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    properties: dict[str, Any] = {"type": {"const": cls.type}}
    for name in names:
        known = DIAGNOSTIC if cls is events.Problem and name == "diagnostic" else _of_type(hints[name])
        properties[name] = known
    properties["at"] = {"type": "number", "description": "seconds since 1970"}
    return {
        "type": "object",
        "description": " ".join((cls.__doc__ or "").split()),
        "required": ["type", *names],
        "properties": properties,
    }


def _of_type(hint: Any) -> dict[str, Any]:
    """Return the schema of a field's type.

    Raises:
        TypeError: the event schema has no word for it; add one here.
    """
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if hint is object or hint is Any:
        return {}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:  # noqa: PLR2004 - tuple[X, ...]
        return {"type": "array", "items": _of_type(arguments[0])}
    if origin is tuple:
        items = [_of_type(argument) for argument in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of_type(arguments[1])}
    if origin in (typing.Union, types.UnionType):
        return {
            "anyOf": [
                {"type": "null"} if argument is type(None) else _of_type(argument) for argument in arguments
            ]
        }
    raise TypeError(f"no schema for {hint!r}")
