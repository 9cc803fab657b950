"""Files of our own: modes that no umask widens, links that are not followed, content as foreign input."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from provision.cli.files import write_file
from provision.engine.journal import Journal
from provision.engine.model import StepId
from provision.engine.run_lock import clear_run_lock, run_lock
from provision.values.errors import ProvisionError, UsageError
from provision.values.redaction import Redactor
from provision.values.whole_file import make_private_folder


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
def test_no_umask_opens_folders_and_files_to_others(tmp_path: Path) -> None:
    make_private_folder(tmp_path / "a" / "b")
    with run_lock(tmp_path / "c" / "d" / "lock", "run-1", "ann@pc"):
        pass
    write_file(tmp_path / "report.html", "x", 0o600)
    write_file(tmp_path / "schema.json", "x")
    modes = {str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert modes == {
        "a": 0o700,
        "a/b": 0o700,
        "c": 0o700,
        "c/d": 0o700,
        "c/d/lock": 0o600,
        "report.html": 0o600,
        "schema.json": 0o644,
    }


def test_a_lock_that_is_a_link_empties_nothing(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("precious")
    (tmp_path / "lock").symlink_to("target")
    with pytest.raises(UsageError), run_lock(tmp_path / "lock", "run-1", "ann@pc"):
        pass
    with pytest.raises(UsageError):
        clear_run_lock(tmp_path / "lock")
    assert (tmp_path / "target").read_text() == "precious"


@pytest.mark.parametrize(
    "text",
    ['{"run": "r", "who": "w", "pid": 1e400, "since": 1}',
     '{"run": "r", "who": "w", "pid": 1, "since": 1e400}',
     "[" * 4000, "\x00\xff", '{"run": []}', "9" * 4096],
)  # fmt: skip
def test_a_lock_file_with_odd_content_is_taken_and_cleared(tmp_path: Path, text: str) -> None:
    (tmp_path / "lock").write_text(text, encoding="latin-1")
    with (
        run_lock(tmp_path / "lock", "run-1", "ann@pc"),
        pytest.raises(ProvisionError, match="run-1"),
        run_lock(tmp_path / "lock", "run-2", "ann@pc"),
    ):
        pass
    (tmp_path / "lock").write_text(text, encoding="latin-1")
    clear_run_lock(tmp_path / "lock")
    assert (tmp_path / "lock").read_bytes() == b""


def test_text_that_is_no_unicode_ends_no_writer(tmp_path: Path) -> None:
    redactor = Redactor("secret-word")
    journal = Journal(tmp_path / "journal.sqlite", redactor.text, patience=5.0)
    journal.begin("run-1", "lab\ud800", "apply", "ann\udcff@pc")
    odd = json.loads('"\\ud800 secret-word \\udcff"')
    journal.step("run-1", StepId("base_os", "vm-1"), "failed", 1.0, odd)
    journal.intent("run-1", StepId("base_os", "vm-1"), "vm-1/ssh", [odd])
    journal.end("run-1", 1.0, 1, {}, interrupted=False)
    journal.close()
    assert journal.failure() is None
    data = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"secret-word" not in data
    assert redactor.text(odd) == "\ufffd *** \udcff"
