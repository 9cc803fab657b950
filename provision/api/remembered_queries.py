"""The queries of former plans and verifications, so that the next run asks them all at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from provision.api import query_cache
from provision.engine.session import Session

VERIFIED = "#verify"
"""Ends the names under which queries of verification are kept: a plan without one asks none of them."""


class RememberedQueries:
    """The cache of one site, read once.

    Args:
        path: its file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _by_name(self) -> dict[str, frozenset[Any]]:
        return query_cache.read(self._path)

    def recall(self, *, verify: bool) -> dict[str, frozenset[Any]]:
        """Return the queries of last time by system, with `verify` also those of the checks."""
        queries = {name: known for name, known in self._by_name.items() if not name.endswith(VERIFIED)}
        if verify:
            for name, known in self._by_name.items():
                if name.endswith(VERIFIED):
                    system = name.removesuffix(VERIFIED)
                    queries[system] = queries.get(system, frozenset()) | known
        return queries

    def update(self, session: Session, verified: Mapping[str, Iterable[Any]], *, partial: bool) -> None:
        """Keep the queries of this run.

        Args:
            session: whose systems were asked.
            verified: queries of the checks by system.
            partial: not all was looked at: former queries stay.
        """
        before = self._by_name
        now = dict(before)
        for name, system in session.systems.items():
            if system.snapshot is not None and system.claimed:
                former = before.get(name, frozenset()) if partial else frozenset()
                # A query may say that it is not worth asking before it is needed.
                lasting = (query for query in system.claimed if getattr(query, "remembered", True))
                now[name] = former.union(lasting)
        for name, queries in verified.items():
            now[f"{name}{VERIFIED}"] = frozenset(queries)
        if now != before:
            query_cache.write(self._path, now)
            self._by_name = now
