"""Values of a chart: laid over each other, and checked against the chart's own tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def laid_over(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with further ones over them, as Helm does: mappings merge, all else replaces."""
    result = dict(base)
    for key, value in more.items():
        held = result.get(key)
        if isinstance(held, Mapping) and isinstance(value, Mapping):
            result[key] = laid_over(held, value)
        else:
            result[key] = value
    return result


def unknown_paths(values: Mapping[str, Any], defaults: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the paths of values that a chart does not know: Helm accepts them without a word.

    Below an empty mapping, and below what is no mapping, the chart accepts anything.
    """
    for key, value in values.items():
        place = f"{path}.{key}" if path else key
        if key not in defaults:
            yield place
            continue
        default = defaults[key]
        if isinstance(value, Mapping) and isinstance(default, Mapping) and default:
            yield from unknown_paths(value, default, place)
