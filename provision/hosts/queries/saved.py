"""Queries about what a host keeps of files as they were before provision first changed them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.query import Frame
from provision.hosts.operations.placement import saved_name
from provision.hosts.resources.base import lines_of, no_answer

NOTHING, ABSENT, FILE, RESTORED = "nothing", "absent", "file", "restored"
_WORDS = frozenset({NOTHING, ABSENT, FILE, RESTORED})


@dataclass(frozen=True, slots=True)
class SavedFile:
    """What is known of a path before the first change.

    `nothing` (never changed), `absent` (there was none), `file` (a copy is kept), `restored` (put back).
    """

    kind: ClassVar[str] = "saved"
    path: str


class SavedFileKind:
    """One fragment of builtins for all paths."""

    query = SavedFile

    def script(self, queries: Sequence[SavedFile]) -> str:
        """Return the fragment."""
        names = (f"{saved_name(query.path)} {shlex.quote(query.path)}" for query in queries)
        return (
            f"set -- {' '.join(names)}\n"
            "v=${PROVISION_BLOBS:-/var/lib/provision/blobs}\n"
            "v=${v%/blobs}/saved\nwhile [ $# -gt 0 ]; do\n  k=nothing\n"
            '  if [ -r "$v/$1.entry" ]; then\n'
            '    { IFS= read -r k && IFS= read -r k; } <"$v/$1.entry" || k=\n'
            "    case $k in 8*) k=file;; esac\n  fi\n"
            '  printf \'%s|%s\\n\' "$k" "$2"\n  shift 2\ndone'
        )

    def parse(self, frame: Frame, queries: Sequence[SavedFile]) -> Mapping[SavedFile, object]:
        """Return a word for each path."""
        words = {}
        for line in lines_of(frame):
            word, _, path = line.partition("|")
            if word in _WORDS:
                words[path] = word
        return {query: words.get(query.path, no_answer(frame, query.path)) for query in queries}
