"""What was asked last time, kept in a file that one run reads several times."""

from __future__ import annotations

from pathlib import Path

from provision.engine import asked
from provision.hosts.queries.file import FileText

FIRST, SECOND = FileText("/etc/hostname"), FileText("/etc/hosts")


def test_another_file_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "asked.json"
    assert asked.read(file) == {}
    asked.write(file, {"a/ssh": {FIRST}})
    assert asked.read(file) == {"a/ssh": frozenset({FIRST})}
    asked.write(file, {"a/ssh": {SECOND}})
    assert asked.read(file) == {"a/ssh": frozenset({SECOND})}


def test_what_a_caller_does_to_the_answer_does_not_come_back(tmp_path: Path) -> None:
    file = tmp_path / "asked.json"
    asked.write(file, {"a/ssh": {FIRST}})
    asked.read(file).clear()
    asked.read(file).clear()
    assert asked.read(file) == {"a/ssh": frozenset({FIRST})}


def test_a_question_of_an_unknown_kind_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "asked.json"
    asked.write(file, {"a/ssh": {FIRST, SECOND}})
    file.write_text(file.read_text().replace("file:FileText", "file:Gone", 1))
    assert len(asked.read(file)["a/ssh"]) == 1
