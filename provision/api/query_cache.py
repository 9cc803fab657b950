"""The queries that each system got last time, so that the next plan asks them all at once.

It holds queries and no answers, and is only a cache: without it the first plan costs one more round trip.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from provision.values.whole_file import make_private_folder, write_whole

VERSION = 1


def pack(query: Any) -> list[Any] | None:
    """Return a query as JSON types, or None when it has fields that JSON cannot hold."""
    cls = type(query)
    values = [_packed(getattr(query, each.name)) for each in fields(cls)]
    if any(value is NotImplemented for value in values):
        return None
    return [f"{cls.__module__}:{cls.__qualname__}", query.kind, values]


def _packed(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        items = [_packed(each) for each in value]
        return NotImplemented if any(each is NotImplemented for each in items) else items
    return NotImplemented


def unpack(data: Any) -> Any | None:
    """Return the query, or None when its kind is unknown by now; loads no module."""
    return _unpack(data, {})


def _unpack(data: Any, classes: dict[tuple[str, str], tuple[type, list[str]] | None]) -> Any | None:
    try:
        place, kind, values = data
        if (place, kind) not in classes:
            classes[place, kind] = _class_of(place, kind)
        known = classes[place, kind]
        if known is None:
            return None
        cls, names = known
        query = cls(**dict(zip(names, map(_unpacked, values), strict=True)))
        hash(query)
    except (TypeError, ValueError, AttributeError):
        return None
    return query


def _class_of(place: str, kind: str) -> tuple[type, list[str]] | None:
    module, _, name = place.partition(":")
    cls = getattr(sys.modules.get(module), name, None)
    if not (isinstance(cls, type) and is_dataclass(cls)) or getattr(cls, "kind", None) != kind:
        return None
    return cls, [member.name for member in fields(cls)]


def _unpacked(value: Any) -> Any:
    return tuple(_unpacked(each) for each in value) if isinstance(value, list) else value


def read(path: Path) -> dict[str, frozenset[Any]]:
    """Return the queries by system; nothing when the file is absent or damaged."""
    try:
        data = json.loads(path.read_bytes())
        if data["version"] != VERSION:
            return {}
        classes: dict[tuple[str, str], tuple[type, list[str]] | None] = {}
        table = [_unpack(packed, classes) for packed in data["queries"]]
        return {
            str(system): frozenset(table[index] for index in indexes) - {None}
            for system, indexes in data["systems"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return {}


def write(path: Path, queries_by_system: Mapping[str, Iterable[Any]]) -> None:
    """Write the queries by system, each query once; a full disk is no error."""
    table: dict[Any, int | None] = {}
    packed: list[list[Any]] = []
    systems: dict[str, list[int]] = {}
    for system, queries in queries_by_system.items():
        indexes = systems.setdefault(system, [])
        for query in queries:
            if query not in table:
                data = pack(query)
                table[query] = None if data is None else len(packed)
                if data is not None:
                    packed.append(data)
            index = table[query]
            if index is not None:
                indexes.append(index)
        indexes.sort()
    text = json.dumps({"version": VERSION, "queries": packed, "systems": systems}, separators=(",", ":"))
    try:
        make_private_folder(path.parent)
        write_whole(path, text, lasting=False)
    except OSError:
        return
