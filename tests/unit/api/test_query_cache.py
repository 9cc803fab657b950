"""The questions of the last run, kept in a file."""

from __future__ import annotations

from pathlib import Path

from provision.api import query_cache
from provision.hosts.queries.file import FileText

FIRST, SECOND = FileText("/etc/hostname"), FileText("/etc/hosts")


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "query_cache.json"
    assert query_cache.read(file) == {}
    query_cache.write(file, {"a/ssh": {FIRST}})
    assert query_cache.read(file) == {"a/ssh": frozenset({FIRST})}
    query_cache.write(file, {"a/ssh": {SECOND}})
    assert query_cache.read(file) == {"a/ssh": frozenset({SECOND})}


def test_a_question_of_an_unknown_kind_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "query_cache.json"
    query_cache.write(file, {"a/ssh": {FIRST, SECOND}})
    file.write_text(file.read_text().replace("file:FileText", "file:Gone", 1))
    assert len(query_cache.read(file)["a/ssh"]) == 1
