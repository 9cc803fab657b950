"""Desired and live objects side by side: what is the same without asking, and what differs as fields."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from provision.kube.queries import JsonObject

MANAGER = "provision"
"""Our field manager."""
_SERVERS = frozenset(
    [
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "managedFields",
        "selfLink",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ]
)
_COUNTERS = frozenset({"deprecated.daemonset.template.generation", "deployment.kubernetes.io/revision"})
"""Annotations in which controllers count changes."""
_KEYS = ("name", "key", "type", "mountPath", "containerPort", "uid")
"""What identifies an item of a list of mappings, the first that all items have."""
_UNITS = {"": 0, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "n": -9, "u": -6, "P": 15, "E": 18}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|n|u|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?").fullmatch
_AMOUNTS = frozenset({"limits", "requests", "capacity", "allocatable", "hard"})


def is_applied(live: JsonObject, manifest: JsonObject) -> bool:
    """Whether applying a manifest would change nothing, as far as that is sure without asking.

    All fields of the manifest have their values, and we own no field that the manifest does not have.
    """
    return _contains(live, manifest) and not _owned_beyond(live, manifest)


def _contains(live: Any, desired: Any, key: str = "") -> bool:
    if isinstance(desired, Mapping):
        if not isinstance(live, Mapping):
            return not desired and live is None
        return all(_contains(live.get(name), inner, _amounts(key, name)) for name, inner in desired.items())
    if isinstance(desired, list):
        if not isinstance(live, list) or len(live) < len(desired):
            return not desired and live is None
        identity = next((name for name in _KEYS if _all_have(desired, name) and _all_have(live, name)), None)
        if identity is None:
            return len(live) == len(desired) and all(map(_contains, live, desired))
        by_key = {item[identity]: item for item in live}
        return all(item[identity] in by_key and _contains(by_key[item[identity]], item) for item in desired)
    return bool(live == desired) or (key in _AMOUNTS and _amount(live) == _amount(desired) is not None)


def _amounts(key: str, name: str) -> str:
    """Return the name that decides how a value below `key` is compared."""
    return key if key in _AMOUNTS else name


def _all_have(items: Sequence[Any], name: str) -> bool:
    return all(isinstance(item, Mapping) and name in item for item in items)


def _amount(value: Any) -> Decimal | None:
    """Return a quantity (`500m`, `2Gi`) as a number; None where it is none."""
    match = _QUANTITY(str(value))
    if match is None:
        return None
    unit = match[2] or ""
    try:
        number = Decimal(match[1])
    except InvalidOperation:
        return None
    if unit.endswith("i"):
        return number * Decimal(1024) ** Decimal("KMGTPE".index(unit[0]) + 1)
    return number * Decimal(10) ** _UNITS[unit]


def _owned_beyond(live: JsonObject, manifest: JsonObject) -> bool:
    """Whether we own a field of a live object that a manifest does not have: applying would remove it."""
    entries = _mapping(live.get("metadata")).get("managedFields")
    for entry in entries if isinstance(entries, list) else []:
        if not isinstance(entry, Mapping) or entry.get("subresource"):
            continue
        if (entry.get("manager"), entry.get("operation")) == (MANAGER, "Apply"):
            return _beyond(_mapping(entry.get("fieldsV1")), manifest)
    return False


def _beyond(fields: Mapping[str, Any], desired: Any) -> bool:
    for element, inner in fields.items():
        kind, _, rest = element.partition(":")
        if element == ".":
            continue
        if kind == "f":
            if not isinstance(desired, Mapping) or rest not in desired:
                return True
            if inner and _beyond(inner, desired[rest]):
                return True
        elif kind == "k":
            declared = _json(rest)
            item = next((item for item in _items(desired) if _contains(item, declared)), None)
            if item is None or (inner and _beyond(inner, item)):
                return True
        elif kind == "v" and _json(rest) not in _items(desired):
            return True
    return False


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def without_servers(body: JsonObject) -> dict[str, Any]:
    """Return an object without what the server alone writes."""
    kept = {key: value for key, value in body.items() if key != "status"}
    metadata = {key: value for key, value in _mapping(body.get("metadata")).items() if key not in _SERVERS}
    notes = _mapping(metadata.pop("annotations", {}))
    if notes := {key: value for key, value in notes.items() if key not in _COUNTERS}:
        metadata["annotations"] = notes
    return {**kept, "metadata": metadata}


def differences(before: JsonObject, after: JsonObject) -> Iterator[tuple[str, Any, Any]]:
    """Yield path, old and new value of each field that differs; None is nothing there."""
    yield from _differ(without_servers(before), without_servers(after), "")


def _differ(before: Any, after: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys((*before, *after)):
            name = f"[{key}]" if "." in key or "/" in key else f".{key}" if path else key
            yield from _differ(before.get(key), after.get(key), path + name)
    elif _all_named(before) and _all_named(after) and before and after:
        old, new = ({item["name"]: item for item in items} for items in (before, after))
        for name in dict.fromkeys((*old, *new)):
            yield from _differ(old.get(name), new.get(name), f"{path}[{name}]")
    elif before != after:
        yield path, shown(before), shown(after)


def _all_named(value: Any) -> bool:
    return isinstance(value, list) and _all_have(value, "name")


def shown(value: Any) -> Any:
    """Return a value as a plan shows it."""
    if isinstance(value, Mapping | list):
        return json.dumps(value, sort_keys=True)
    return value
