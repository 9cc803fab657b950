"""Queries about files that provision may have left: by a mark in them, or by the beginning of their name."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from provision.contracts.query import Frame, Unknown
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
        return _fragment(
            f"grep -sHF -d skip -D skip -e {shlex.quote(query.mark)} -- {shlex.quote(query.folder)}/* |"
            f" sed 's/^/{index}|/' || :"
            for index, query in enumerate(queries)
        )

    def parse(self, frame: Frame, queries: Sequence[MarkedFiles]) -> Mapping[MarkedFiles, object]:
        """Return the pairs for each folder."""
        return {query: _marked(query, lines) for query, lines in _lines(frame, queries)}


def _marked(query: MarkedFiles, lines: Unknown | list[str]) -> Unknown | tuple[tuple[str, str], ...]:
    if isinstance(lines, Unknown):
        return lines
    parts = (line.partition(f":{query.mark}") for line in lines)
    return tuple(
        sorted(
            (path, rest.strip())
            for path, colon, rest in parts
            if colon and path.startswith(f"{query.folder}/")
        )
    )


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
        return _fragment(
            f"for f in {shlex.quote(f'{query.folder}/{query.prefix}')}*; do"
            f' if [ -f "$f" ]; then printf \'{index}|%s\\n\' "$f"; fi; done'
            for index, query in enumerate(queries)
        )

    def parse(self, frame: Frame, queries: Sequence[FileNames]) -> Mapping[FileNames, object]:
        """Return the paths for each folder."""
        return {
            query: lines if isinstance(lines, Unknown) else tuple(sorted(lines))
            for query, lines in _lines(frame, queries)
        }


Q = TypeVar("Q", MarkedFiles, FileNames)


def _fragment(commands: Iterable[str]) -> str:
    """Return commands that print lines `INDEX|TEXT`, and a last line that shows that all of them ran."""
    return "\n".join((*commands, "printf 'done|\\n'"))


def _lines(frame: Frame, queries: Sequence[Q]) -> Iterator[tuple[Q, Unknown | list[str]]]:
    """Yield the texts for each query."""
    lines = lines_of(frame)
    is_whole = bool(lines) and lines[-1] == "done|"
    texts: dict[str, list[str]] = {}
    for line in lines:
        index, _, text = line.partition("|")
        texts.setdefault(index, []).append(text)
    for number, query in enumerate(queries):
        yield query, texts.get(str(number), []) if is_whole else no_answer(frame, query.folder)
