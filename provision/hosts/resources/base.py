"""What resources and queries of a host share: checked names, parts of resources, answers by line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol

from pydantic import SecretStr

from provision.contracts.change import Change, Op, Settles
from provision.contracts.effect import Effect
from provision.contracts.query import Frame, Unknown
from provision.contracts.remedy import Impossible, Remedy
from provision.contracts.resource import KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.hosts.operations import basic as ops
from provision.inventory.grammar import USER

HEADER = "# Written by provision; changes are overwritten.\n"
"""First line of files that are ours as a whole."""
_PATH = re.compile(r"/(?:[^\x00-\x1f\x7f\\/]+(?:/[^\x00-\x1f\x7f\\/]+)*)?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._:-]{0,254}")
_OWNER = re.compile(rf"{USER}|[0-9]{{1,10}}|")
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def is_path(path: str) -> bool:
    """Whether it is an absolute, plain path."""
    return _PATH.fullmatch(path) is not None and not {".", ".."} & set(path.split("/"))


@lru_cache(maxsize=65536)
def checked_path(path: str) -> str:
    """Return an absolute, plain path.

    Raises:
        ValueError: it is relative, not normal, or holds control bytes or a backslash.
    """
    if not is_path(path):
        raise ValueError(f"{path!r} is not a plain absolute path")
    return path


@lru_cache(maxsize=4096)
def checked_name(name: str) -> str:
    """Return the name of a package or kernel module.

    Raises:
        ValueError: it is not one.
    """
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not a plain name")
    return name


def checked_owner(name: str) -> str:
    """Return the name or number of a user or group; empty is unmanaged.

    Raises:
        ValueError: it is none.
    """
    if _OWNER.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not the name or number of a user or group")
    return name


def checked_line(text: str, what: str) -> str:
    """Return one line of text.

    Raises:
        ValueError: it holds a line break, NUL or another control character than a tab.
    """
    if _CONTROLS.search(text):
        raise ValueError(f"{what} is not one line of text without control characters")
    return text


# ---------------------------------------------------------------- resources


Operations = Sequence[ops.Operation] | Impossible
"""What corrects a resource, in order, or why nothing can."""


class Part(Protocol):
    """A piece of a resource with a state of its own; every `HostResource` is one, too."""

    def queries(self) -> tuple[Any, ...]:
        """Return the queries whose answers `changes` and `operations` read."""

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return what differs."""

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return what corrects it; only called when something differs."""


@dataclass(frozen=True, slots=True)
class HostResource(KeyedResource):
    """A desired state on a host.

    Args:
        effects: what must happen after a change.
        risks: consents that the change itself needs.
    """

    effects: tuple[Effect, ...] = field(default=(), kw_only=True)
    risks: tuple[Effect, ...] = field(default=(), kw_only=True)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return what corrects it."""
        raise NotImplementedError

    def fix(self, snapshot: Snapshot, /) -> Remedy:
        """Return the operations as a fix, with the effects that they need."""
        operations = self.operations(snapshot)
        if isinstance(operations, Impossible):
            return operations
        effects = self._due_effects(snapshot)
        remedy = ops.fix(operations, effects, secrets=self._secrets(), timeout=self._seconds())
        return replace(remedy, risks=self.risks) if self.risks else remedy

    def refusal(self, code: str, summary: str, *, untouched: str, remedy: str) -> Impossible:
        """Return why nothing is done about a difference, for parts of the resource."""
        return self._refused(code, summary, untouched=untouched, remedy=remedy)

    def _due_effects(self, snapshot: Snapshot, /) -> tuple[Effect, ...]:
        """Return the effects of a fix, where they depend on what is there."""
        del snapshot
        return self.effects

    def _secrets(self) -> tuple[SecretStr, ...]:
        """Return what must be masked in the output of a fix."""
        return ()

    def _seconds(self) -> float:
        """Return how long a fix may take."""
        return 300.0


@dataclass(frozen=True, slots=True)
class Composite(HostResource):
    """A resource made of parts: a file that counts at the next boot, a live value, a unit."""

    def parts(self) -> Mapping[str, Part]:
        """Return the parts by what they are called in changes, in the order in which they are corrected."""
        raise NotImplementedError

    def queries(self) -> tuple[Any, ...]:
        """Return the queries of all parts."""
        return tuple(query for part in self.parts().values() for query in part.queries())

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return what differs in any part; the main field of a part is called like the part."""
        return tuple(
            replace(change, path=name if change.path in _MAIN else f"{name}: {change.path}")
            for name, part in self.parts().items()
            for change in part.changes(snapshot)
        )

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return what corrects the parts that differ; one that cannot be corrected stops it all."""
        operations: list[ops.Operation] = []
        for part in self.parts().values():
            if part.changes(snapshot):
                more = part.operations(snapshot)
                if isinstance(more, Impossible):
                    return more
                operations += more
        return operations


_MAIN = ("content", "file", "value")


@dataclass(slots=True)  # not frozen, because a plan makes thousands: freezing triples their cost
class Live:
    """A part: one value of the running system.

    Args:
        query: whose answer holds the value.
        read: reads the value from the answer; None means that there is none.
        desired: the value that it should have; None means that there should be none.
        correction: what sets it; nothing where an effect of the resource or time does.
        settles: when it can be read back.
        deadline: seconds, for Settles.WITHIN.
    """

    query: Any
    read: Callable[[Any], object]
    desired: object
    correction: tuple[ops.Operation, ...] = ()
    settles: Settles = Settles.NOW
    deadline: float = 0.0

    def queries(self) -> tuple[Any, ...]:
        """Return the one query."""
        return (self.query,)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return the value as it is and as it should be."""
        value = self.read(snapshot[self.query])
        if value == self.desired:
            return ()
        op = Op.CREATE if value is None else Op.DELETE if self.desired is None else Op.UPDATE
        return (Change(op, "value", value, self.desired, self.settles, self.deadline),)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return what sets it."""
        del snapshot
        return self.correction


# ---------------------------------------------------------------- answers


def first_line(data: bytes, fallback: str) -> str:
    """Return the first non-empty line of some output as text."""
    lines = (line.strip() for line in data.decode("utf-8", "replace").splitlines())
    return next((line[:200] for line in lines if line), fallback)


def no_answer(frame: Frame, topic: str) -> Unknown:
    """Return why a fragment gave no answer."""
    if frame.rc is None:
        return Unknown(f"the connection was cut before {topic} was answered")
    if frame.dropped:
        return Unknown(f"the answer about {topic} was too long")
    return Unknown(first_line(frame.stderr, f"no answer about {topic}"))


def lines_of(frame: Frame) -> list[str]:
    """Return the whole lines of an answer; none where bytes are missing in the middle."""
    return [] if frame.dropped else frame.stdout.decode("utf-8", "replace").split("\n")[:-1]


Rows = Mapping[str, Sequence[Sequence[str]]]
"""The fields of lines `TAG|FIELD|FIELD` by tag."""


def rows_of(frame: Frame) -> Rows | None:
    """Return the fields of an answer's lines; None unless its last line `done|` came."""
    rows: dict[str, list[list[str]]] = {}
    for line in lines_of(frame):
        tag, *fields = map(str.strip, line.split("|"))
        rows.setdefault(tag, []).append(fields)
    return rows if "done" in rows else None


@dataclass(frozen=True, slots=True)
class HostFactKind:
    """A query about the host as a whole: one fixed fragment, whose lines are `TAG|FIELD...` and last `done|`.

    Args:
        query: the query's class; all its instances are equal.
        topic: what it is about, for messages.
        fragment: POSIX text.
        read: returns an answer from the rows; may raise on rows that it does not understand.
    """

    query: type[Any]
    topic: str
    fragment: str
    read: Callable[[Rows], object]

    def script(self, queries: Sequence[Any]) -> str:
        """Return the fragment."""
        del queries
        return self.fragment

    def parse(self, frame: Frame, queries: Sequence[Any]) -> Mapping[Any, object]:
        """Return the same answer for every query."""
        rows = rows_of(frame)
        try:
            answer = no_answer(frame, self.topic) if rows is None else self.read(rows)
        except (ValueError, IndexError, KeyError):
            answer = Unknown(f"the answer about {self.topic} is not understood")
        return dict.fromkeys(queries, answer)
