"""Queries about what a host keeps of files as they were before provision first changed them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.query import Frame
from provision.hosts.operations.placement import saved_name
from provision.hosts.resources.base import is_path, lines_of, no_answer

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
            '  if [ -f "$v/$1.entry" ]; then\n'
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


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """Paths with our name in them, sorted: files that a write of ours has made and that are still there.

    Each write notes what its path held before, so these are all such files, whatever declared them. Files of
    k3s have k3s's own names, and go with k3s alone.
    """

    kind: ClassVar[str] = "own-files"


class OwnFilesKind:
    """One fragment of builtins."""

    query = OwnFiles

    def script(self, queries: Sequence[OwnFiles]) -> str:
        """Return the fragment."""
        del queries
        return (
            "v=${PROVISION_BLOBS:-/var/lib/provision/blobs}\n"
            'for f in "${v%/blobs}"/saved/*.entry; do if [ -f "$f" ]; then\n'
            'p= k=; { IFS= read -r p && IFS= read -r k; } <"$f" || :\n'
            'case $p in *provision*) if [ "$k" = absent ] && [ -f "$p" ] && [ ! -L "$p" ]; then\n'
            "printf '%s|%s\\n' \"${f##*/}\" \"$p\"; fi;; esac\nfi; done\nprintf 'done\\n'"
        )

    def parse(self, frame: Frame, queries: Sequence[OwnFiles]) -> Mapping[OwnFiles, object]:
        """Return the paths whose entries have the names that a write of ours gives them."""
        lines = lines_of(frame)
        if not lines or lines[-1] != "done":
            return dict.fromkeys(queries, no_answer(frame, "saved files"))
        entries = (line.partition("|") for line in lines[:-1])
        paths = (path for name, _, path in entries if name == f"{saved_name(path)}.entry" and is_path(path))
        return dict.fromkeys(queries, tuple(sorted(paths)))
