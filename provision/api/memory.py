"""What systems were asked, by plans and by verifications, so that the next run asks it all at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provision.engine import asked
from provision.engine.session import Session

VERIFIED = "#verify"
"""Ends the names under which questions of verification are kept: a plan without one asks none of them."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The file of what was asked; a cache and nothing more."""

    path: Path

    def recall(self, *, verify: bool) -> dict[str, frozenset[Any]]:
        """Return what was asked last time by system, with `verify` also by the checks."""
        found = asked.read(self.path)
        plain = {name: queries for name, queries in found.items() if not name.endswith(VERIFIED)}
        if verify:
            for name, queries in found.items():
                if name.endswith(VERIFIED):
                    system = name.removesuffix(VERIFIED)
                    plain[system] = plain.get(system, frozenset()) | queries
        return plain

    def note(self, session: Session, verified: Mapping[str, Iterable[Any]], *, partial: bool) -> None:
        """Keep what was asked now.

        Args:
            session: whose systems were asked.
            verified: questions of the checks by system.
            partial: not all was looked at: what was known before stays.
        """
        before = asked.read(self.path)
        now: dict[str, Iterable[Any]] = dict(before)
        for name, system in session.systems.items():
            if system.snapshot is not None and system.claimed:
                now[name] = system.claimed | before.get(name, frozenset()) if partial else system.claimed
        for name, queries in verified.items():
            now[f"{name}{VERIFIED}"] = queries
        if any(set(now[name]) != set(before.get(name, ())) for name in now):
            asked.write(self.path, now)
