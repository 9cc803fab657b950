"""A skip that nobody reviewed is red, also where tests run in several processes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parents[1]
IN_A_TEST = "import pytest\ndef test_it():\n    pytest.skip({reason!r})\n"
WHOLE_FILE = "import pytest\npytest.skip({reason!r}, allow_module_level=True)\n"


@pytest.mark.parametrize("source", [IN_A_TEST, WHOLE_FILE], ids=["test", "file"])
@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["one process", "worker"])
@pytest.mark.parametrize(("reason", "red"), [("nobody reviewed this", True), ("reviewed", False)])
def test_an_unreviewed_skip_is_red(
    tmp_path: Path, source: str, workers: list[str], reason: str, red: bool
) -> None:
    shutil.copy(HOME / "conftest.py", tmp_path)
    (tmp_path / "reviewed_skips.txt").write_text("reviewed\n")
    (tmp_path / "test_skipping.py").write_text(source.format(reason=reason))
    (tmp_path / "test_passing.py").write_text("def test_it():\n    pass\n")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", tmp_path, *workers, tmp_path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == int(red), result.stdout
    assert result.stdout.count("not in tests/reviewed_skips.txt") == int(red), result.stdout
