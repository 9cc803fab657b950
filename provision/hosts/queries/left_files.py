"""Queries about files that provision may have left: by a mark in them, or by the beginning of their name."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.query import Frame
from provision.hosts.resources.base import lines_of, no_answer


@dataclass(frozen=True, slots=True)
class MarkedFiles:
    """Files in a folder with a line that begins with a mark: pairs of path and the rest of that line.

    Nothing else of them is sent, so they may hold secrets.
    """

    kind: ClassVar[str] = "marked-files"
    folder: str
    mark: str


class MarkedFilesKind:
    """One grep for each folder and mark."""

    query = MarkedFiles

    def script(self, queries: Sequence[MarkedFiles]) -> str:
        """Return the fragment."""
        lines = [
            f"printf 'q|{index}\\n'; grep -sHF -d skip -D skip -e {shlex.quote(query.mark)}"
            f" -- {shlex.quote(query.folder)}/* | sed 's/^/f|/' || :"
            for index, query in enumerate(queries)
        ]
        return "\n".join((*lines, "printf 'done|\\n'"))

    def parse(self, frame: Frame, queries: Sequence[MarkedFiles]) -> Mapping[MarkedFiles, object]:
        """Return the pairs for each folder."""
        lines = lines_of(frame)
        if not lines or lines[-1] != "done|":
            return {query: no_answer(frame, query.folder) for query in queries}
        files: dict[str, list[str]] = {}
        current: list[str] = []
        for line in lines:
            tag, _, rest = line.partition("|")
            if tag == "q":
                current = files.setdefault(rest, [])
            elif tag == "f":
                current.append(rest)
        return {query: _marked(query, files.get(str(index), [])) for index, query in enumerate(queries)}


def _marked(query: MarkedFiles, lines: Sequence[str]) -> tuple[tuple[str, str], ...]:
    pairs = []
    for line in lines:
        path, colon, rest = line.partition(f":{query.mark}")
        if colon and path.startswith(f"{query.folder}/"):
            pairs.append((path, rest.strip()))
    return tuple(sorted(pairs))


@dataclass(frozen=True, slots=True)
class FileNames:
    """Paths of the files in a folder whose names begin with a text."""

    kind: ClassVar[str] = "file-names"
    folder: str
    prefix: str


class FileNamesKind:
    """One fragment of builtins."""

    query = FileNames

    def script(self, queries: Sequence[FileNames]) -> str:
        """Return the fragment."""
        lines = [
            f"for f in {shlex.quote(f'{query.folder}/{query.prefix}')}*; do"
            f' if [ -f "$f" ]; then printf \'{index}|%s\\n\' "$f"; fi; done'
            for index, query in enumerate(queries)
        ]
        return "\n".join((*lines, "printf 'done|\\n'"))

    def parse(self, frame: Frame, queries: Sequence[FileNames]) -> Mapping[FileNames, object]:
        """Return the paths for each folder."""
        lines = lines_of(frame)
        if not lines or lines[-1] != "done|":
            return {query: no_answer(frame, query.folder) for query in queries}
        paths: dict[str, list[str]] = {}
        for line in lines:
            tag, _, path = line.partition("|")
            paths.setdefault(tag, []).append(path)
        return {query: tuple(sorted(paths.get(str(index), []))) for index, query in enumerate(queries)}
