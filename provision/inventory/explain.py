"""From pydantic's errors to problems as a user should read them."""

from __future__ import annotations

import itertools
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError

from provision.inventory.other_words import our_word
from provision.inventory.scalars import near, shape_of
from provision.inventory.tree import KeyPath, Tree
from provision.values.diagnostics import Diagnostic

MOST = 500
"""Problems that are shown at most; nobody reads more."""
_FIRST_KEYS: dict[KeyPath, str] = {
    ("version",): "write `version: 1` at the top of the file",
    ("name",): "write `name: lab` at the top of the file, with a name of yours",
}
"""What to type for the keys that every inventory has."""
_WITHOUT_DASH = "write each entry as `KEY: VALUE`, without a dash before it"


def explain(
    error: ValidationError, tree: Tree, model: type[BaseModel]
) -> list[tuple[KeyPath, Diagnostic | None]]:
    """Return each problem with the path of the item that it spoils.

    None stands for a key that is only missing because it was taken away for an error of its own.
    """
    errors = error.errors(include_url=False, include_context=True)[:MOST]
    listed: set[str] = set()
    return [
        (path, problem and _once(problem, listed))
        for path, problem in (_one(dict(candidate), tree, model) for candidate in errors)
    ]


def _once(problem: Diagnostic, listed: set[str]) -> Diagnostic:
    """Return the problem without a list of keys that another one has shown."""
    if problem.code != "INVENTORY_UNKNOWN_KEY" or problem.remedy not in listed:
        listed.add(problem.remedy)
        return problem
    return replace(problem, remedy="")


def _one(error: dict[str, Any], tree: Tree, model: type[BaseModel]) -> tuple[KeyPath, Diagnostic | None]:
    path = _path(error["loc"], tree)
    kind: str = error["type"]
    value = error.get("input")
    subject = str(path[1]) if len(path) > 1 and path[0] in ("nodes", "hypervisors", "profiles") else ""
    where = dotted(path)
    code, remedy, source = "INVENTORY_VALUE", "", tree.source(path, on_key=error["loc"][-1:] == ("[key]",))
    if kind == "extra_forbidden":
        code, source = "INVENTORY_UNKNOWN_KEY", tree.source(path, on_key=True)
        summary, remedy = _unknown_key(path, model, tree)
    elif kind == "missing":
        if tree.find(path) is not None:
            return path, None
        code, source = "INVENTORY_MISSING_KEY", tree.source(path[:-1], on_key=True)
        summary = f"{dotted(path[:-1]) or 'the inventory'} lacks the key {path[-1]!r}"
        remedy = _FIRST_KEYS.get(path, "")
    elif kind in ("literal_error", "enum"):
        words = [word.strip("' ") for word in error["ctx"]["expected"].replace(" or ", ", ").split(", ")]
        hint = near(value, words) if isinstance(value, str) else ""
        shown = f"{where}: {shape_of(value)} is not"
        summary = f"{shown} {words[0]}" if len(words) == 1 else f"{shown} one of {', '.join(words)}{hint}"
    elif kind in ("model_type", "model_attributes_type", "dict_type"):
        summary = f"{where}: expected a mapping, found {shape_of(value)}"
        remedy = _WITHOUT_DASH if shape_of(value) == "a list" else _known(path, _keys(model, path, tree))
    elif kind in ("tuple_type", "list_type"):
        summary = f"{where}: expected a list, found {shape_of(value)}"
        remedy = f"write it in brackets: `{path[-1]}: [{value}]`" if _is_word(value) else ""
    elif kind == "union_tag_not_found":
        code = "INVENTORY_MISSING_KEY"
        summary = f"{where} lacks the key 'kind'"
        remedy = "write it like `{ kind: package, name: htop }`"
    elif kind == "union_tag_invalid":
        words = [word.strip("' ") for word in error["ctx"]["expected_tags"].split(", ")]
        tag = str(error["ctx"]["tag"])
        source = tree.source((*path, "kind"))
        summary = (
            f"{where}: {tag[:60]!r} is not a kind of resource{near(tag, words)} (known: {', '.join(words)})"
        )
    else:
        code = "INVENTORY_SECRET" if kind == "inventory_secret" else code
        summary = f"{where}: {error['msg']}" if where else error["msg"]
    return path, Diagnostic(code, summary, subject, source=source, remedy=remedy)


def _is_word(value: Any) -> bool:
    """Whether a value is one word or number, as a list of one entry is often written."""
    return isinstance(value, str | int) and re.fullmatch(r"[\w.:-]{1,60}", str(value)) is not None


def _known(section: KeyPath, keys: list[str]) -> str:
    return f"known keys of {dotted(section) or 'the inventory'}: {', '.join(keys)}" if keys else ""


def _unknown_key(path: KeyPath, model: type[BaseModel], tree: Tree) -> tuple[str, str]:
    """Return what to say of an unknown key, and the known ones if none of them is like it."""
    key, section = str(path[-1]), path[:-1]
    inside = dotted(section) or "the inventory"
    keys = _keys(model, section, tree)
    ours = our_word(key, section)
    hint = f": did you mean {ours}?" if ours else near(key, keys)
    remedy = "" if hint else _known(section, keys)
    return f"unknown key {key[:80]!r} in {inside}{hint}", remedy


def _path(loc: tuple[str | int, ...], tree: Tree) -> KeyPath:
    """Return where an error lies in the tree, without pydantic's own marks."""
    path: list[str | int] = []
    for index, part in enumerate(loc):
        if part == "[key]":
            continue
        is_last = index == len(loc) - 1
        written = tree.find((*path, part)) is not None
        if is_last or written or not (isinstance(part, str) and _is_tag(tuple(path), part, tree)):
            path.append(part)
    return tuple(path)


def _is_tag(path: KeyPath, part: str, tree: Tree) -> bool:
    kind = tree.find((*path, "kind"))
    return kind is not None and str(kind.value) == part


def _keys(model: type[BaseModel], path: KeyPath, tree: Tree) -> list[str]:
    """Return the keys that a mapping at a path may have."""
    model_here: Any = model
    walked: KeyPath = ()
    for part in path:
        model_here = _below(model_here, part)
        walked = (*walked, part)
        members = _models(model_here)
        if len(members) > 1:
            kind = tree.find((*walked, "kind"))
            chosen = [member for member in members if _kind_of(member) == (str(kind.value) if kind else "")]
            model_here = chosen[0] if chosen else model_here
    return [
        name
        for candidate in _models(model_here)
        for name, field in candidate.model_fields.items()
        if not field.exclude
    ]


def _kind_of(model: type[BaseModel]) -> str:
    field = model.model_fields.get("kind")
    return str(typing.get_args(field.annotation)[0]) if field is not None else ""


def _below(annotation: Any, part: str | int) -> Any:
    for candidate in _parts(annotation):
        if (
            isinstance(candidate, type)
            and issubclass(candidate, BaseModel)
            and part in candidate.model_fields
        ):
            return candidate.model_fields[str(part)].annotation
        origin = typing.get_origin(candidate)
        if origin is dict:
            return typing.get_args(candidate)[1]
        if origin is tuple:
            return typing.get_args(candidate)[0]
    return None


def _models(annotation: Any) -> list[type[BaseModel]]:
    return [part for part in _parts(annotation) if isinstance(part, type) and issubclass(part, BaseModel)]


def _parts(annotation: Any) -> list[Any]:
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _parts(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return [part for argument in typing.get_args(annotation) for part in _parts(argument)]
    return [annotation]


def dotted(path: KeyPath) -> str:
    """Return a path as text: `nodes.vm-1.disks[0].size`."""
    made = ""
    for part in path:
        made += f"[{part}]" if isinstance(part, int) else f".{part}" if made else str(part)
    return made


def without(data: Any, path: KeyPath) -> Any:
    """Return a copy without what stands at a path; of a list, all goes, so that positions stay true."""
    keys = list(itertools.takewhile(lambda part: isinstance(part, str), path))
    return _dropped(data, keys) if keys else data


def _dropped(data: Any, keys: list[str | int]) -> Any:
    head, rest = keys[0], keys[1:]
    if not isinstance(data, Mapping) or head not in data:
        return data
    made = dict(data)
    below = _dropped(made[head], rest) if rest else None
    if not rest or below is made[head]:
        del made[head]
    else:
        made[head] = below
    return made
