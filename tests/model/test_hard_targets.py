"""A full disk, a read-only one, an immutable file: the fix fails, and what was there is as it was."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from provision.hosts.operations import basic as ops
from tests.model.shells import SHELLS, run

ABLE = os.getuid() == 0 and shutil.which("mount") is not None
pytestmark = pytest.mark.skipif(not ABLE, reason="needs root and mount(8)")
SPOILED = {
    "full": "head -c 38000 /dev/zero >filler 2>/dev/null || :",
    "read-only": 'mount -o remount,ro "$root"',
    "immutable": "chattr +i a 2>/dev/null || exit 42",
    "a folder in its place": "rm a; mkdir a",
}


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    yield folder
    for command in (["chattr", "-i", f"{folder}/a"], ["umount", str(folder)]):
        subprocess.run(command, capture_output=True, check=False)


@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("shell", SHELLS)
def test_a_fix_that_cannot_write_changes_nothing(shell: str, how: str, root: Path) -> None:
    frame = run(
        shell,
        f"root={root}\nmount -t tmpfs -o size=40k,mode=755 none $root 2>/dev/null || exit 43\n"
        f"cd $root\nprintf 'before\\n' >a\nchmod 0640 a\n{SPOILED[how]}\nexit 0",
    )
    if frame.rc:
        pytest.skip("needs root that may mount, and chattr(1)")
    kept = {path.name: path.read_bytes() if path.is_file() else b"" for path in root.iterdir()}
    state = root.parent / "state" / "blobs"
    fix = ops.fix([ops.WriteFile(f"{root}/a", b"x" * 60_000, "0600")])
    result = run(shell, fix.script, env={"PROVISION_BLOBS": str(state)})
    assert result.rc != 0
    assert result.stderr
    assert {path.name: path.read_bytes() if path.is_file() else b"" for path in root.iterdir()} == kept
    if how != "a folder in its place":
        assert (root / "a").stat().st_mode & 0o777 == 0o640
