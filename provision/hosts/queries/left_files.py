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
    """Files in folders with a line that begins with a mark: pairs of path and the rest of that line.

    Nothing else of them is sent, so they may hold secrets.

    Args:
        folder: of the files.
        mark: beginning of the line.
        storages: a file of storages with lines `path FOLDER` and `content-dirs KIND=FOLDER,...`, where the
            kind is the name of `folder`; their folders are searched, too.
    """

    kind: ClassVar[str] = "marked-files"
    folder: str
    mark: str
    storages: str = ""


class MarkedFilesKind:
    """One grep for each folder and mark."""

    query = MarkedFiles

    def script(self, queries: Sequence[MarkedFiles]) -> str:
        """Return the fragment."""
        return _fragment(
            f"{_folders(query)} | sort -u | while IFS= read -r folder; do"
            f' grep -sHF -d skip -D skip -e {shlex.quote(query.mark)} -- "$folder"/* || :; done |'
            f" sed 's/^/{index}|/' || :"
            for index, query in enumerate(queries)
        )

    def parse(self, frame: Frame, queries: Sequence[MarkedFiles]) -> Mapping[MarkedFiles, object]:
        """Return the pairs for each folder."""
        return {query: _marked(query, lines) for query, lines in _lines(frame, queries)}


def _folders(query: MarkedFiles) -> str:
    """Return the command that prints the folders; a list of storages that cannot be read ends the fragment.

    The folder of one storage is looked for below the others, too: without a mark nothing is taken.
    """
    first = f"printf '%s\\n' {shlex.quote(query.folder)}"
    if not query.storages:
        return first
    listed, name = shlex.quote(query.storages), query.folder.rpartition("/")[2]
    own = f"s/^[[:space:]]*content-dirs[[:space:]].*{name}=\\([^,]*\\).*/\\1/p"
    return (
        f"cat < {listed} >/dev/null\n{{ {first}; sed -n 's/^[[:space:]]*path[[:space:]]*//p' {listed} |"
        ' while IFS= read -r root || [ -n "$root" ]; do'
        f" {{ echo {shlex.quote(name)}; sed -n {shlex.quote(own)} {listed}; }} |"
        ' while IFS= read -r part || [ -n "$part" ]; do'
        ' printf \'%s/%s\\n\' "${root%/}" "${part#/}"; done; done; }'
    )


def _marked(query: MarkedFiles, lines: Unknown | list[str]) -> Unknown | tuple[tuple[str, str], ...]:
    if isinstance(lines, Unknown):
        return lines
    parts = (line.partition(f":{query.mark}") for line in lines)
    return tuple(sorted({(path, rest.strip()) for path, colon, rest in parts if colon}))


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
