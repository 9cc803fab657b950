"""The inventory as a tree of items that remember where they were written; merging keeps the positions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from provision.inventory.core_values import Scalar
from provision.inventory.secrets import Secret
from provision.values.diagnostics import Source

_BREAKS = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_SHOWN = 200
KeyPath = tuple[str | int, ...]
"""Where a value stands: names of keys and numbers in lists, from the root."""
DISCRIMINATORS = {("sharing",): "mode", ("network", "dhcp"): "backend"}
"""Sections that another file replaces whole when it changes this key."""


class SourceFile:
    """A file's text, kept for the lines that problems show."""

    def __init__(self, name: str, text: str, folder: str) -> None:
        self.name = name
        self.text = text
        self.folder = folder

    @cached_property
    def lines(self) -> list[str]:
        """Its lines, counted as YAML counts them."""
        return _BREAKS.split(self.text)

    def source(self, line: int, column: int, width: int = 1) -> Source:
        """Return a position; line and column start at 0 here."""
        shown = self.lines[line] if line < len(self.lines) else ""
        if column > _SHOWN:
            shown = ""
        return Source(self.name, line + 1, column + 1, shown[:_SHOWN], max(1, width))


class Item:
    """One value of a file: a mapping, a list, a scalar, a secret or nothing.

    Args:
        value: its content.
        file: where it was written.
        line: first line is 0.
        column: first column is 0.
        width: how many characters a mark covers.
        weight: how much it holds in all, aliases expanded.
    """

    __slots__ = ("_plain", "column", "file", "keys", "line", "value", "weight", "width")

    def __init__(
        self,
        value: dict[str, Item] | list[Item] | Scalar | Secret | None,
        file: SourceFile,
        line: int,
        column: int,
        width: int = 1,
        weight: int = 1,
    ) -> None:
        self.value = value
        self.file = file
        self.line = line
        self.column = column
        self.width = width
        self.weight = weight
        self.keys: dict[str, tuple[SourceFile, int, int]] = {}
        self._plain: Any = None

    def plain(self) -> Any:
        """Return the content for validation; shared parts stay shared."""
        value = self.value
        if isinstance(value, dict):
            if self._plain is None:
                self._plain = {key: item.plain() for key, item in value.items()}
            return self._plain
        if isinstance(value, list):
            if self._plain is None:
                self._plain = [item.plain() for item in value]
            return self._plain
        return value

    def source(self) -> Source:
        """Return its position."""
        return self.file.source(self.line, self.column, self.width)

    def key_source(self, key: str) -> Source | None:
        """Return the position of one of its keys."""
        source = self.keys.get(key)
        return None if source is None else source[0].source(source[1], source[2], len(key))

    def child(self, key: str) -> Item | None:
        """Return the value of a key, if this is a mapping that has it."""
        return self.value.get(key) if isinstance(self.value, dict) else None

    def copy(self) -> Item:
        """Return a mapping of its own with the same children."""
        made = Item(self.value, self.file, self.line, self.column, self.width, self.weight)
        if isinstance(self.value, dict):
            made.value = dict(self.value)
            made.keys = dict(self.keys)
        return made

    def put(self, key: str, item: Item, where: tuple[SourceFile, int, int] | None = None) -> None:
        """Set a key of a mapping that is not shared."""
        assert isinstance(self.value, dict)  # noqa: S101 - callers make the mapping themselves
        self.value[key] = item
        self.keys[key] = where or (item.file, item.line, item.column)
        self._plain = None

    def drop(self, key: str) -> None:
        """Remove a key of a mapping that is not shared."""
        assert isinstance(self.value, dict)  # noqa: S101 - callers make the mapping themselves
        self.value.pop(key, None)
        self.keys.pop(key, None)
        self._plain = None


def merge(base: Item, over: Item, path: tuple[str, ...] = ()) -> Item:
    """Return `base` changed by `over`: mappings merge, nothing removes, all else replaces."""
    if not isinstance(base.value, dict) or not isinstance(over.value, dict):
        return over
    chooser = DISCRIMINATORS.get(path)
    if chooser is not None and _text(over.child(chooser)) not in (None, _text(base.child(chooser))):
        return over
    made = base.copy()
    made.file, made.line, made.column, made.width = over.file, over.line, over.column, over.width
    for key, item in over.value.items():
        if item.value is None:
            made.drop(key)
            continue
        old = base.value.get(key)
        made.put(key, item if old is None else merge(old, item, (*path, key)), over.keys.get(key))
    return made


def _text(item: Item | None) -> str | None:
    return None if item is None else str(item.value)


class Tree:
    """A resolved inventory with its positions."""

    def __init__(self, root: Item) -> None:
        self.root = root
        self._element_sources: dict[int, list[Source | None]] = {}

    def element_sources(self, path: KeyPath) -> Sequence[Source | None]:
        """Return the position of each element of a list, empty where none was written.

        A list that many nodes share through a profile is looked through once.
        """
        item = self.find(path)
        if item is None or not isinstance(item.value, list):
            return ()
        if id(item) not in self._element_sources:
            self._element_sources[id(item)] = [element.source() for element in item.value]
        return self._element_sources[id(item)]

    def find(self, path: KeyPath) -> Item | None:
        """Return the item at a path, or None where nothing was written."""
        item: Item | None = self.root
        for part in path:
            item = _step(item, part)
            if item is None:
                return None
        return item

    def source(self, path: KeyPath, *, on_key: bool = False) -> Source | None:
        """Return the position of the deepest part of a path that was written.

        Args:
            path: keys and list positions from the root; parts that are not there are skipped.
            on_key: mark the key, not its value.
        """
        item = self.root
        mark: Callable[[], Source | None] = item.source
        for part in path:
            below = _step(item, part)
            if below is None:
                continue
            holder, name = item, part
            structured = isinstance(below.value, dict | list)
            if isinstance(name, str) and (on_key or structured) and name in holder.keys:
                mark = _key_mark(holder, name)
            else:
                mark = below.source
            item = below
        return mark()


def _key_mark(item: Item, key: str) -> Callable[[], Source | None]:
    return lambda: item.key_source(key)


def _step(item: Item | None, part: str | int) -> Item | None:
    if item is None:
        return None
    value = item.value
    if isinstance(value, dict):
        return value.get(str(part)) if isinstance(part, str) else None
    if isinstance(value, list) and isinstance(part, int) and 0 <= part < len(value):
        return value[part]
    return None
