"""Files of the controller are foreign input: bounded in size and time, whatever is at their path."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from provision.values.read_file import read_limited


def test_a_pipe_without_a_writer_ends_by_its_deadline(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TimeoutError, match="no end of its content"):
        read_limited(tmp_path / "pipe", 100, 0.1)


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"secret\n" * 3,), daemon=True)
    writer.start()
    assert read_limited(pipe, 100, 5.0) == b"secret\n" * 3
    writer.join(5)


def test_no_more_than_the_limit_is_read(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 300_000)
    assert read_limited(tmp_path / "large", 100_000) == b"x" * 100_001
    assert read_limited(Path("/dev/zero"), 100_000) == b"\0" * 100_001
    assert read_limited(Path("/dev/null"), 10) == b""


@pytest.mark.parametrize("name", [".", "x" * 300, "missing", "a\0b"])
def test_what_is_no_file_raises(tmp_path: Path, name: str) -> None:
    with pytest.raises((OSError, ValueError)):
        read_limited(tmp_path / name, 100)
