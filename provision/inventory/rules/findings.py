"""Collects what the rules find."""

from __future__ import annotations

from collections.abc import Iterable

from provision.inventory.scalars import near
from provision.inventory.tree import KeyPath, Tree
from provision.inventory.vocabulary import Vocabulary
from provision.values.diagnostics import Diagnostic


class Findings:
    """Problems, positions looked up as they come.

    Args:
        tree: the resolved inventory; references count as known when they were written, even wrongly.
        vocabulary: names that domains bring.
    """

    def __init__(self, tree: Tree, vocabulary: Vocabulary) -> None:
        self.tree = tree
        self.vocabulary = vocabulary
        self.problems: list[Diagnostic] = []

    def add(self, code: str, summary: str, path: KeyPath, *, on_key: bool = False, remedy: str = "") -> None:
        """Note a problem at a path."""
        subject = str(path[1]) if len(path) > 1 and path[0] in ("nodes", "hypervisors", "profiles") else ""
        source = self.tree.source(path, on_key=on_key)
        self.problems.append(Diagnostic(code, summary, subject, source=source, remedy=remedy))

    def conflict(self, summary: str, path: KeyPath, *, remedy: str = "") -> None:
        """Note that two declared things cannot both be."""
        self.add("INVENTORY_CONFLICT", summary, path, on_key=True, remedy=remedy)

    def lacks(self, what: str, key: str, path: KeyPath, *, remedy: str = "") -> None:
        """Note a key that is missing because of what else is declared."""
        self.add("INVENTORY_MISSING_KEY", f"{what} lacks the key {key!r}", path, on_key=True, remedy=remedy)

    def written(self, path: KeyPath) -> bool:
        """Whether something was written at a path."""
        return self.tree.find(path) is not None

    def reference(self, what: str, name: str, section: KeyPath, path: KeyPath) -> bool:
        """Whether `name` is a key of a section; notes it otherwise."""
        item = self.tree.find(section)
        known: Iterable[str] = item.value if item is not None and isinstance(item.value, dict) else ()
        if name in known:
            return True
        hint = near(name, known)
        remedy = "" if hint else f"declare it under `{'.'.join(map(str, section))}`"
        self.add("INVENTORY_REFERENCE", f"there is no {what} {name!r}{hint}", path, remedy=remedy)
        return False

    def unique(self, what: str, value: str, path: KeyPath, places: dict[str, KeyPath]) -> None:
        """Note a value that stands elsewhere already; `seen` is filled by the calls."""
        first = places.setdefault(value, path)
        if first != path:
            owner = ".".join(str(part) for part in first[:2])
            self.add("INVENTORY_DUPLICATE", f"{what} {value} is declared twice, first by {owner}", path)
