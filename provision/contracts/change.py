"""Identity of a resource and its field-level differences."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Key(NamedTuple):
    """Identity of a resource: no two different desired states may share one.

    A tuple, because a plan makes and compares several of them for each resource.
    """

    system: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.system}:{self.kind}:{self.name}"


class Op(StrEnum):
    """The alphabet of a plan."""

    CREATE = "+"
    UPDATE = "~"
    REPLACE = "-/+"
    DELETE = "-"
    ATTENTION = "!"


class Settles(StrEnum):
    """When a change can be read back."""

    NOW = "now"
    AFTER_EFFECT = "after-effect"
    WITHIN = "within"


@dataclass(frozen=True, slots=True)
class Change:
    """One field-level difference.

    Args:
        op: what happens.
        path: which field (`mode`, `content`, `net0.mac`).
        old: present value, as the user may read it (None = there is none).
        new: desired value (None = there should be none).
        settles: now, after the fix's effects, or within `deadline` seconds (polled).
        deadline: seconds, for Settles.WITHIN.
        secret: old and new are never shown; saved plans compare what is a SecretStr.
    """

    op: Op
    path: str
    old: object = None
    new: object = None
    settles: Settles = Settles.NOW
    deadline: float = 0.0
    secret: bool = False
