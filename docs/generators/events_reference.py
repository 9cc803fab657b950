"""The page of the events of `--json`, from their schema."""

from __future__ import annotations

import typing
from typing import Any

from provision.report.schema import DIAGNOSTIC, event_schema


def reference() -> str:
    """Return the page as Markdown."""
    lines = [
        "# Events",
        "",
        "```console",
        "$ provision plan starter.yaml --json",
        "```",
        "",
        "`--json` prints one JSON object per line on standard output, and nothing else there. Every object",
        "has `type`, `run` (the run's id) and `at` (seconds since 1970). Secrets are masked.",
        "",
        "Ignore types and fields that you do not know: new ones may come. Existing ones keep their meaning.",
        "`provision schema --events` prints the JSON Schema.",
        "",
    ]
    for name, schema in event_schema()["$defs"].items():
        lines += [f"## `{name}`", "", schema["description"], "", "| field | type |", "|---|---|"]
        lines += [
            f"| `{field}` | {_words(part)} |"
            for field, part in schema["properties"].items()
            if field not in _COMMON
        ]
        lines.append("")
    lines += [
        "## A diagnostic",
        "",
        "The value of `diagnostic` in a `problem` event.",
        "",
        "| field | type |",
    ]
    properties = typing.cast("dict[str, dict[str, Any]]", DIAGNOSTIC["properties"])
    lines += ["|---|---|", *(f"| `{field}` | {_words(part)} |" for field, part in properties.items()), ""]
    return "\n".join(lines)


_COMMON = ("type", "run", "at")


def _words(schema: dict[str, Any]) -> str:  # noqa: PLR0911 - one return a form of schema
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    kind = schema.get("type")
    if kind == "array" and "prefixItems" in schema:
        return "list of " + ", ".join(_words(each) for each in schema["prefixItems"])
    if kind == "array":
        return f"list of: {_words(schema['items'])}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object, each value: {_words(schema['additionalProperties'])}"
    if kind == "object":
        return "diagnostic, see below"
    if isinstance(kind, list):
        return " or ".join(kind)
    return str(kind or "any")
