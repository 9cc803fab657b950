"""The YAML blocks of docs/inventory.md, and which keys they show to be unsupported.

The tool itself says what is unsupported: each block is laid over `inventories/starter.yaml` and loaded.
"""

from __future__ import annotations

import re
import tempfile
import typing
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from provision.api.domains import load_inventory
from provision.api.support import unsupported
from provision.contracts.support import Unsupported
from provision.inventory.models.inventory import Inventory
from provision.inventory.models.node import Node, Profile
from provision.inventory.schema import members
from provision.inventory.tree import KeyPath

FILE = Path(__file__).with_suffix(".yaml")
BASE = Path(__file__).parents[2] / "inventories" / "starter.yaml"
MARK = "  # not supported yet"

Field = tuple[type[BaseModel], str]
"""A key of the inventory: the model and its field's name."""


class _Loader(yaml.SafeLoader):
    """Reads the blocks as data; a secret is an empty mapping."""


_Loader.add_constructor("!secret", lambda _loader, _node: {})


@dataclass(frozen=True, slots=True)
class Example:
    """One YAML block.

    Args:
        section: heading on the page, as `network.dhcp`.
        text: YAML that is laid over the base inventory.
        unsupported: what of it `plan` refuses.
        inventory: the base with this block.
    """

    section: str
    text: str
    unsupported: tuple[Unsupported, ...]
    inventory: Inventory

    @property
    def marked(self) -> str:
        """The YAML with a mark at the end of each line that declares something unsupported."""
        lines = self.text.splitlines()
        for path in (path for item in self.unsupported for path in _paths(item)):
            source = self.inventory.source(path)
            if source is not None and not lines[source.line - 1].endswith(MARK):
                lines[source.line - 1] += MARK
        return "\n".join(lines)

    def fields(self) -> set[Field]:
        """Return the keys that the block declares."""
        return set(_fields(Inventory, yaml.load(self.text, _Loader)))  # noqa: S506 - a SafeLoader with one tag

    def unsupported_fields(self) -> set[Field]:
        """Return the keys whose declaration `plan` refuses."""
        return {_field_of(item.path) for item in self.unsupported}


@cache
def examples() -> tuple[Example, ...]:
    """Return all blocks in the order of the file."""
    parts = re.split(r"^# === ?(.*)\n", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return tuple(_example(*pair) for pair in zip(parts[::2], parts[1::2], strict=True))


def _example(section: str, text: str) -> Example:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as overlay:
        overlay.write(text)
        overlay.flush()
        inventory = load_inventory(BASE, overlays=[Path(overlay.name)], environ={})
    return Example(section, text, unsupported(inventory), inventory)


def _paths(item: Unsupported) -> Iterator[KeyPath]:
    """Yield where something was declared: once for each host that it is about."""
    if item.path[0] in ("nodes", "hypervisors"):
        yield from ((item.path[0], name, *item.path[2:]) for name in item.subjects)
    else:
        yield item.path


@cache
def unsupported_fields() -> Mapping[Field, str]:
    """Return `not supported yet` or `partly supported`, by key; keys that are supported are not in it."""
    declared, refused = Counter[Field](), Counter[Field]()
    for example in examples():
        declared.update(example.fields())
        refused.update(example.unsupported_fields() & example.fields())
    sections = {example.section.partition(".")[0] for example in examples() if example.section}
    supported = {example.section.partition(".")[0] for example in examples() if not example.unsupported}
    return {
        field: "not supported yet" if count == declared[field] else "partly supported"
        for field, count in refused.items()
    } | {(Inventory, section): "not supported yet" for section in sections - supported}


def keys_of(model: type[BaseModel]) -> Iterator[Field]:
    """Yield the keys of a section that a user can write, but not the one that says which kind it is."""
    for name, field in model.model_fields.items():
        if not field.exclude and name != "kind":
            yield _owner(model, name)


def _owner(model: type[BaseModel], name: str) -> Field:
    """Return a key with the model whose table on the page lists it."""
    return (Profile, name) if model is Node and name in Profile.model_fields else (model, name)


def _fields(model: type[BaseModel], data: Mapping[str, Any]) -> Iterator[Field]:
    for name, value in data.items():
        yield _owner(model, name)
        for inner, part in _parts(model, name, value):
            yield from _fields(inner, part)


def _parts(
    model: type[BaseModel], name: str, value: Any
) -> Iterator[tuple[type[BaseModel], Mapping[str, Any]]]:
    """Yield the sections below a key, each with its model."""
    models = members(model.model_fields[name].annotation)
    if not models or model.model_fields[name].annotation is None:
        return
    values = value if isinstance(value, list) else [value]
    if isinstance(value, dict) and typing.get_origin(model.model_fields[name].annotation) is dict:
        values = list(value.values())
    for part in values:
        if isinstance(part, dict):
            yield next((each for each in models if _is_kind(each, part)), models[0]), part


def _is_kind(model: type[BaseModel], part: Mapping[str, Any]) -> bool:
    kind = model.model_fields.get("kind")
    return kind is not None and typing.get_args(kind.annotation) == (part.get("kind"),)


def _field_of(path: KeyPath) -> Field:
    """Return the last key on a path from the root of an inventory."""
    model: type[BaseModel] = Inventory
    field: Field = (Inventory, str(path[0]))
    for name in path:
        if name not in model.model_fields:
            continue  # a name that the user chose, or a position in a list
        field = _owner(model, str(name))
        below = members(model.model_fields[str(name)].annotation)
        model = below[0] if below else model
    return field
