"""Checks objects against the schema of their CRD, in the words of the two checkers of an API server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from provision.lab.kube.errors import Cause
from provision.lab.kube.fields import Schema, child
from provision.lab.kube.kinds import Kind

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_APPLY_WORDS = {
    "object": "map",
    "array": "list",
    "string": "string",
    "boolean": "boolean",
    "integer": "numeric (int or float)",
    "number": "numeric (int or float)",
}


def json_type(value: Any) -> str:
    """Return the JSON type of a value."""
    if isinstance(value, bool):
        return "boolean"
    names = {
        dict: "object",
        list: "array",
        str: "string",
        int: "integer",
        float: "number",
        type(None): "null",
    }
    return names[type(value)]


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    if value is None or schema.get("x-kubernetes-int-or-string"):
        return True
    types = _TYPES.get(schema.get("type", ""))
    if types is None:
        return True
    return isinstance(value, types) and (not isinstance(value, bool) or bool in types)


def _is_open(schema: Mapping[str, Any]) -> bool:
    """Whether an object may have keys that its schema does not name."""
    return bool(
        schema.get("x-kubernetes-preserve-unknown-fields")
        or schema.get("x-kubernetes-embedded-resource")
        or schema.get("additionalProperties")
    )


def unknown_fields(value: Any, schema: Schema, path: str = "") -> Iterator[str]:
    """Yield the fields that a schema does not declare, as `spec.mod`."""
    if schema is None:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            place = f"{path}.{key}" if path else key
            if not path and key in {"apiVersion", "kind", "metadata"}:
                continue
            known = child(schema, key)
            if known is None and not _is_open(schema):
                yield place
            else:
                yield from unknown_fields(inner, known, place)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown_fields(item, schema.get("items"), f"{path}[{index}]")


def apply_error(kind: Kind, value: Mapping[str, Any]) -> str:
    """Return why an applied object has no type that fits, or an empty text.

    The server answers HTTP 500 to it, without a reason.
    """
    schema = kind.schema
    if schema is None:
        unknown = [
            key
            for key in value
            if kind.fields and key not in {"apiVersion", "kind", "metadata", *kind.fields}
        ]
        return f".{unknown[0]}: field not declared in schema" if unknown else ""
    wrong = next(_wrong_types(value, schema, ""), "")
    unknown_field = next(unknown_fields(value, schema), "")
    return wrong or (f".{unknown_field}: field not declared in schema" if unknown_field else "")


def _wrong_types(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if schema is None:
        return
    if not _fits(value, schema):
        got = {"array": "list", "object": "map", "integer": "int"}.get(json_type(value), json_type(value))
        yield f"{path}: expected {_APPLY_WORDS[schema['type']]}, got {got}"
    elif isinstance(value, dict):
        for key, inner in value.items():
            if path or key != "metadata":
                yield from _wrong_types(inner, child(schema, key), f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _wrong_types(item, schema.get("items"), f"{path}[{index}]")


def causes(value: Any, schema: Schema, path: str = "") -> Iterator[Cause]:
    """Yield what validation finds wrong with an object."""
    if schema is None or value is None:
        return
    if not _fits(value, schema):
        kind = json_type(value)
        text = f'Invalid value: "{kind}": {path} in body must be of type {schema["type"]}: "{kind}"'
        yield "FieldValueTypeInvalid", text, path
        return
    yield from _wrong_scalar(value, schema, path)
    if isinstance(value, dict):
        for key in schema.get("required", ()):
            if key not in value:
                yield "FieldValueRequired", "Required value", f"{path}.{key}" if path else key
        for key, inner in value.items():
            if path or key != "metadata":
                yield from causes(inner, child(schema, key), f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from causes(item, schema.get("items"), f"{path}[{index}]")


def _wrong_scalar(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    if "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(json.dumps(word) for word in schema["enum"])
        text = f"Unsupported value: {json.dumps(value)}: supported values: {allowed}"
        yield "FieldValueNotSupported", text, path
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        text = f"Invalid value: {json.dumps(value)}: {path} in body should match '{schema['pattern']}'"
        yield "FieldValueInvalid", text, path
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from _outside(value, schema, path)


def _outside(value: float, schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and value < low:
        text = f"Invalid value: {value}: {path} in body should be greater than or equal to {low}"
        yield "FieldValueInvalid", text, path
    if high is not None and value > high:
        text = f"Invalid value: {value}: {path} in body should be less than or equal to {high}"
        yield "FieldValueInvalid", text, path


def defaulted(value: Any, schema: Schema) -> Any:
    """Return an object with the defaults of its schema."""
    if schema is None:
        return value
    if isinstance(value, dict):
        result = {key: defaulted(inner, child(schema, key)) for key, inner in value.items()}
        for key, inner in schema.get("properties", {}).items():
            if key not in result and "default" in inner:
                result[key] = defaulted(json.loads(json.dumps(inner["default"])), inner)
        return result
    if isinstance(value, list):
        return [defaulted(item, schema.get("items")) for item in value]
    return value
