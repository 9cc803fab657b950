"""Label and field selectors of lists and watches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from provision.lab.kube.errors import bad_request

Labels = Callable[[Mapping[str, str]], bool]
_SET = re.compile(r"(\S+)\s+(in|notin)\s+\(([^)]*)\)").fullmatch
_EQUAL = re.compile(r"([^=!]+?)\s*(==?|!=)\s*([^=!]*)").fullmatch
_FIELDS = ("metadata.name", "metadata.namespace")
_POD_FIELDS = ("spec.nodeName", "status.phase")


def labels(text: str) -> Labels:
    """Return what a label selector accepts."""
    rules = [_rule(part.strip()) for part in re.split(r",(?![^(]*\))", text) if part.strip()]
    return lambda held: all(rule(held) for rule in rules)


def of_object(selector: Mapping[str, Any] | None) -> Labels:
    """Return what the selector in an object accepts: an empty one accepts all, none accepts nothing."""
    if selector is None:
        return lambda _held: False
    words = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for row in selector.get("matchExpressions") or ():
        key, values = row["key"], ",".join(row.get("values") or ())
        forms = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "DoesNotExist": f"!{key}"}
        words.append(forms.get(row["operator"], key))
    return labels(",".join(words))


def _rule(part: str) -> Labels:
    match = _SET(part)
    if match is not None:
        key, words = match[1], {word.strip() for word in match[3].split(",")}
        is_wanted = match[2] == "in"
        return lambda held: (held.get(key) in words) is is_wanted
    match = _EQUAL(part)
    if match is not None:
        key, value, is_equal = match[1], match[3], match[2] != "!="
        return lambda held: (held.get(key) == value) is is_equal
    if "=" in part:
        raise bad_request("unable to parse requirement: found '=', expected: identifier")
    if part.startswith("!"):
        return lambda held: part[1:] not in held
    return lambda held: part in held


def fields(text: str, plural: str) -> Callable[[Mapping[str, Any]], bool]:
    """Return what a field selector accepts."""
    known = (*_FIELDS, *(_POD_FIELDS if plural == "pods" else ()))
    rules: list[tuple[list[str], str, bool]] = []
    for part in filter(None, text.split(",")):
        match = _EQUAL(part)
        if match is None or match[1] not in known:
            name = match[1] if match is not None else part
            words = ", ".join(f'"{word}"' for word in _FIELDS)
            raise bad_request(f'"{name}" is not a known field selector: only {words}')
        rules.append((match[1].split("."), match[3], match[2] != "!="))
    return lambda body: all((_value(body, path) == value) is is_equal for path, value, is_equal in rules)


def _value(body: Mapping[str, Any], path: list[str]) -> str:
    value: Any = body
    for key in path:
        value = value.get(key, "") if isinstance(value, Mapping) else ""
    return str(value)
