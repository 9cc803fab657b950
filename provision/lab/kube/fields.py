"""Fields of objects as managedFields has them: sets of paths, and what owning them means."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Path = tuple[str, ...]
"""Elements as in fieldsV1: `f:spec`, `k:{"name":"c"}`, `v:"x"`."""
Schema = Mapping[str, Any] | None

IDENTITY = frozenset(
    [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "selfLink",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
    ]
)
"""Parts of metadata that nobody owns."""
_KEYS = {
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "conditions": ("type",),
    "imagePullSecrets": ("name",),
    "ownerReferences": ("uid",),
    "webhooks": ("name",),
}
"""Lists of Kubernetes' own kinds whose items have identity."""
_SETS = frozenset({"finalizers"})
_ATOMIC = frozenset({"selector", "nodeSelector", "labelSelector"})


def child(schema: Schema, key: str) -> Schema:
    """Return the schema of a key; None where nothing is known."""
    if schema is None:
        return None
    known = schema.get("properties", {}).get(key)
    further = schema.get("additionalProperties")
    return known if known is not None else further if isinstance(further, Mapping) else None


def list_keys(name: str, schema: Schema) -> tuple[str, ...]:
    """Return the keys that identify the items of a list; empty for a list that is one value."""
    if schema is not None:
        return tuple(schema.get("x-kubernetes-list-map-keys", ()))
    return _KEYS.get(name, ())


def is_set(name: str, schema: Schema) -> bool:
    """Whether each item of a list is owned for itself."""
    return name in _SETS if schema is None else schema.get("x-kubernetes-list-type") == "set"


def item_of(item: Any, keys: Sequence[str]) -> str:
    """Return the path element of an item of a list with identity."""
    return "k:" + json.dumps({key: item.get(key) for key in keys}, separators=(",", ":"), sort_keys=True)


def leaves(value: Any, schema: Schema = None, path: Path = (), name: str = "") -> dict[Path, Any]:
    """Return all fields of a value by path."""
    if isinstance(value, Mapping) and value and name not in _ATOMIC and not _is_atomic(schema):
        fields: dict[Path, Any] = {}
        for key, inner in value.items():
            if not _is_nobodys(path, key):
                fields |= leaves(inner, child(schema, key), (*path, f"f:{key}"), key)
        return fields
    if isinstance(value, list):
        keys = list_keys(name, schema)
        if keys and all(isinstance(item, Mapping) for item in value):
            fields = {}
            for item in value:
                place = (*path, item_of(item, keys))
                fields[(*place, ".")] = True
                fields |= leaves(item, schema.get("items") if schema is not None else None, place)
            return fields
        if is_set(name, schema):
            return {(*path, f"v:{json.dumps(item)}"): True for item in value}
    return {path: value}


def _is_nobodys(path: Path, key: str) -> bool:
    is_type = not path and key in {"apiVersion", "kind"}
    return is_type or (path == ("f:metadata",) and key in IDENTITY)


def _is_atomic(schema: Schema) -> bool:
    return schema is not None and schema.get("x-kubernetes-map-type") == "atomic"


def encoded(paths: Iterable[Path]) -> dict[str, Any]:
    """Return paths as fieldsV1."""
    root: dict[str, Any] = {}
    for path in paths:
        place = root
        for element in path:
            place = place.setdefault(element, {})
    return root


def decoded(fields: Mapping[str, Any], path: Path = ()) -> set[Path]:
    """Return fieldsV1 as paths."""
    if not fields:
        return {path} if path else set()
    return {place for key, inner in fields.items() for place in decoded(inner, (*path, key))}


def merged(live: Any, applied: Any, schema: Schema = None, name: str = "") -> Any:
    """Return a live value with an applied one laid over it."""
    if isinstance(live, Mapping) and isinstance(applied, Mapping) and name not in _ATOMIC:
        result = dict(live)
        for key, inner in applied.items():
            result[key] = merged(live[key], inner, child(schema, key), key) if key in live else inner
        return result
    if isinstance(live, list) and isinstance(applied, list):
        keys = list_keys(name, schema)
        if keys:
            items = schema.get("items") if schema is not None else None
            by_key = {item_of(item, keys): item for item in live}
            for item in applied:
                key = item_of(item, keys)
                by_key[key] = merged(by_key[key], item, items) if key in by_key else item
            return list(by_key.values())
        if is_set(name, schema):
            return [*live, *(item for item in applied if item not in live)]
    return applied


def without(value: Any, paths: set[Path], schema: Schema = None, path: Path = (), name: str = "") -> Any:
    """Return a value without some of its fields; what becomes empty goes, too."""
    if isinstance(value, Mapping) and path not in paths:
        result = {}
        for key, inner in value.items():
            place = (*path, f"f:{key}")
            if place in paths:
                continue
            rest = without(inner, paths, child(schema, key), place, key)
            if rest not in ({}, []) or inner in ({}, []):
                result[key] = rest
        return result
    if isinstance(value, list):
        keys = list_keys(name, schema)
        if keys:
            items = schema.get("items") if schema is not None else None
            kept = [item for item in value if (*path, item_of(item, keys), ".") not in paths]
            return [without(item, paths, items, (*path, item_of(item, keys))) for item in kept]
        if is_set(name, schema):
            return [item for item in value if (*path, f"v:{json.dumps(item)}") not in paths]
    return value


def spelled(path: Path) -> str:
    """Return a path as conflicts name it: `.data.x`."""
    text = ""
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            pairs = ",".join(f"{key}={json.dumps(value)}" for key, value in json.loads(rest).items())
            text += f"[{pairs}]"
        elif kind == "v":
            text += f"[={rest}]"
    return text


def merge_patched(live: Any, patch: Any) -> Any:
    """Return a value after a JSON merge patch: null removes."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(live) if isinstance(live, Mapping) else {}
    for key, inner in patch.items():
        if inner is None:
            result.pop(key, None)
        else:
            result[key] = merge_patched(result.get(key), inner)
    return result


def json_patched(live: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """Return a value after a JSON patch.

    Raises:
        KeyError: a path is not there, or a test does not hold.
    """
    result = json.loads(json.dumps(live))
    for operation in operations:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        place = result
        for part in parts[:-1]:
            place = place[int(part)] if isinstance(place, list) else place[part]
        last: Any = parts[-1]
        if isinstance(place, list) and last != "-":
            last = int(last)
        if operation["op"] == "test":
            if place[last] != operation["value"]:
                raise KeyError(operation["path"])
        elif operation["op"] == "remove":
            del place[last]
        elif isinstance(place, list) and operation["op"] == "add":
            place.insert(len(place) if last == "-" else last, operation["value"])
        else:
            if operation["op"] == "replace":
                place[last]
            place[last] = operation["value"]
    return result
