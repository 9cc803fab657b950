"""The query about states that were noted on a host before their first change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from provision.contracts.query import Frame
from provision.hosts.operations.notes import KINDS
from provision.hosts.resources.base import lines_of, no_answer


class NotedState(NamedTuple):
    """How something was: its kind, its name, and its state in one line."""

    of: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class NotedStates:
    """All states that are noted on a host, sorted."""

    kind: ClassVar[str] = "noted"


class NotedStatesKind:
    """One fragment of builtins."""

    query = NotedStates

    def script(self, queries: Sequence[NotedStates]) -> str:
        """Return the fragment."""
        del queries
        return (
            "v=${PROVISION_BLOBS:-/var/lib/provision/blobs}\n"
            'for f in "${v%/blobs}"/saved/*.note; do if [ -f "$f" ]; then\n'
            'k= n= v=; { IFS= read -r k && IFS= read -r n && IFS= read -r v; } <"$f" || :\n'
            'printf \'%s\\n%s\\n%s\\n\' "$k" "$n" "$v"\nfi; done\nprintf \'done\\n\''
        )

    def parse(self, frame: Frame, queries: Sequence[NotedStates]) -> Mapping[NotedStates, object]:
        """Return the states; a note that says nothing is left out."""
        lines = lines_of(frame)
        if not lines or lines[-1] != "done" or len(lines) % 3 != 1:
            return dict.fromkeys(queries, no_answer(frame, "noted states"))
        rows = (NotedState(*lines[index : index + 3]) for index in range(0, len(lines) - 1, 3))
        return dict.fromkeys(queries, tuple(sorted(row for row in rows if row.of in KINDS and row.name)))
