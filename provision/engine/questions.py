"""Questions by system."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from provision.contracts.resource import Resource


class Questions(dict[str, set[Any]]):
    """Questions by system; a system without one is still opened.

    Args:
        asked: several of such tables, united.
    """

    def __init__(self, *asked: Mapping[str, Iterable[Any]]) -> None:
        super().__init__()
        for table in asked:
            self.add(table)

    def add(self, asked: Mapping[str, Iterable[Any]]) -> Self:
        """Add some."""
        for system, queries in asked.items():
            self.setdefault(system, set()).update(queries)
        return self

    def add_resources(self, resources: Iterable[Resource]) -> Self:
        """Add what resources read."""
        for resource in resources:
            self.setdefault(resource.key.system, set()).update(resource.queries())
        return self
