"""Another user swaps names in their folder while a fix writes there: root writes nowhere else."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from provision.connections.local import LocalConnection
from provision.connections.upload import UploadLockedError
from provision.hosts.operations import basic as ops
from provision.hosts.operations.edit import CommentOutSwap
from provision.values.cancel import Cancel
from provision.values.errors import Permanent
from tests.model.shells import SHELLS

ABLE = os.getuid() == 0 and shutil.which("setpriv") is not None
pytestmark = pytest.mark.skipif(not ABLE, reason="needs root and setpriv(1)")
ATTACKER = 12345
TRIES = 72
"""In each of three shells, so more than 200 in all."""
ROUND = 9
SECRET = b"root:secret\n"


@pytest.fixture
def site() -> Iterator[Path]:
    """A folder of root with a victim, and one of the attacker; in memory, because tries end with sync(1)."""
    memory = Path("/dev/shm")  # noqa: S108 - a fresh folder of mkdtemp(3) below it
    root = Path(mkdtemp(prefix="race-", dir=memory if memory.is_dir() else None))
    root.chmod(0o755)
    (root / "victim").mkdir(mode=0o755)
    (root / "victim" / "shadow").write_bytes(SECRET)
    (root / "victim" / "shadow").chmod(0o600)
    (root / "theirs").mkdir(mode=0o755)
    (root / "theirs" / "sub").mkdir(mode=0o755)
    for path in (root / "theirs", root / "theirs" / "sub"):
        os.chown(path, ATTACKER, ATTACKER)
    yield root
    shutil.rmtree(root)


def _attack(theirs: Path, victim: Path) -> None:
    """Swap every name that appears for a link to what only root may write, as fast as it goes."""
    count = 0
    while True:
        for folder in (theirs, theirs / "sub"):
            with contextlib.suppress(OSError):
                for name in os.listdir(folder):  # noqa: PTH208 - the fastest
                    if name == "sub":
                        continue
                    count += 1
                    with contextlib.suppress(OSError):
                        os.rename(f"{folder}/{name}", f"{theirs}/sub/old{count}")  # noqa: PTH104 - fast
                    with contextlib.suppress(OSError):
                        os.symlink(victim / ("shadow" if count % 2 else "."), f"{folder}/{name}")  # noqa: PTH211 - fast
        if count % 7 == 0:
            with contextlib.suppress(OSError):
                os.rename(theirs / "sub", theirs / "away")  # noqa: PTH104 - fast
                os.symlink(victim, theirs / "sub")  # noqa: PTH211 - fast
                os.unlink(theirs / "sub")  # noqa: PTH108 - fast
                os.rename(theirs / "away", theirs / "sub")  # noqa: PTH104 - fast
        count += 1


@contextlib.contextmanager
def _attacker(site: Path) -> Iterator[None]:
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setgid(ATTACKER)
        os.setuid(ATTACKER)
        _attack(site / "theirs", site / "victim")
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _fixes(theirs: Path) -> list[str]:
    user = str(ATTACKER)
    operations: list[ops.Operation] = [
        ops.WriteFile(f"{theirs}/file", b"content\n", "0644", "root"),
        ops.WriteFile(f"{theirs}/file", b"content\n", "0644", user),
        ops.WriteFile(f"{theirs}/sub/keys", b"ssh-ed25519 AAAA\n", "0600", user),
        ops.SetLine(f"{theirs}/sub/shadow", "line"),
        CommentOutSwap(f"{theirs}/shadow"),
        ops.SetMode(f"{theirs}/shadow", "0666"),
        ops.SetOwner(f"{theirs}/sub/shadow", user),
        ops.MakeDirectory(f"{theirs}/sub/folder", user),
        ops.RemoveFile(f"{theirs}/sub/shadow"),
    ]
    assert len(operations) == ROUND
    return [ops.fix([operation]).script for operation in operations]


@pytest.mark.parametrize("shell", SHELLS)
def test_swapped_names_lead_root_nowhere(shell: str, site: Path) -> None:
    functions = "".join(
        f"f{index}() {{\n( set -eu\n{fix}\n) </dev/null >/dev/null 2>&1\n}}\n"
        for index, fix in enumerate(_fixes(site / "theirs"))
    )
    rounds = -(-TRIES // ROUND)
    calls = "\n".join(f"f{index}" for index in range(ROUND))
    script = f"umask 077\n{functions}i=0\nwhile [ $i -lt {rounds} ]; do\n{calls}\ni=$((i+1))\ndone\nexit 0\n"
    with _attacker(site):
        result = subprocess.run(
            [*SHELLS[shell], "-s"], input=script.encode(), capture_output=True, timeout=120, check=False
        )
    assert result.returncode == 0, result.stderr
    shadow = site / "victim" / "shadow"
    assert [path.name for path in (site / "victim").iterdir()] == ["shadow"]
    status = shadow.stat()
    assert (shadow.read_bytes(), status.st_uid, status.st_mode & 0o7777) == (SECRET, 0, 0o600)
    written = [path for path in (site / "theirs").rglob("*") if path.lstat().st_uid == 0]
    assert written == []


def _done(shell: str, operation: ops.Operation) -> subprocess.CompletedProcess[bytes]:
    script = f"umask 077\nf() {{\n( set -eu\n{ops.fix([operation]).script}\n) </dev/null\n}}\nf\n"
    return subprocess.run(
        [*SHELLS[shell], "-s"], input=script.encode(), capture_output=True, timeout=60, check=False
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_a_user_gets_their_file_with_their_own_rights(shell: str, site: Path) -> None:
    path = site / "theirs" / ".ssh" / "authorized_keys"
    result = _done(shell, ops.WriteFile(str(path), b"it's a key\n", "0600", str(ATTACKER)))
    assert result.returncode == 0, result.stderr
    assert path.read_bytes() == b"it's a key\n"
    assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (ATTACKER, 0o600)
    assert path.parent.stat().st_uid == ATTACKER
    result = _done(shell, ops.SetLine(str(path), "second"))
    assert result.returncode == 0, result.stderr
    assert path.read_bytes() == b"it's a key\nsecond\n"
    assert [entry.name for entry in path.parent.iterdir()] == ["authorized_keys"]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("name", "mode", "owner"),
    [
        ("a folder of another user", 0o755, ATTACKER),
        ("a folder that everybody may change", 0o777, 0),
        ("a folder that a user's group may change", 0o775, 0),
    ],
)
def test_a_file_of_root_is_refused_where_others_may_swap_it(
    shell: str, name: str, mode: int, owner: int, site: Path
) -> None:
    folder = site / name
    folder.mkdir()
    os.chown(folder, owner, 65534)
    folder.chmod(mode)
    for operation in (
        ops.WriteFile(f"{folder}/a", b"content\n", "0644", "root", "root"),
        ops.WriteFile(f"{folder}/below/a", b"content\n", "0644"),
        ops.SetLine(f"{folder}/a", "line"),
        ops.MakeDirectory(f"{folder}/below"),
    ):
        result = _done(shell, operation)
        assert result.returncode == 1
        assert b"refused: " in result.stderr
        assert str(folder).encode() in result.stderr
    assert list(folder.iterdir()) == []


def test_a_link_in_a_folder_of_root_is_followed_to_its_end(site: Path) -> None:
    (site / "etc").mkdir(mode=0o755)
    (site / "link").symlink_to("etc/../etc")
    result = _done("dash", ops.WriteFile(f"{site}/link/conf.d/a", b"content\n"))
    assert result.returncode == 0, result.stderr
    assert (site / "etc" / "conf.d" / "a").read_bytes() == b"content\n"
    (site / "astray").symlink_to("theirs")
    result = _done("dash", ops.WriteFile(f"{site}/astray/a", b"content\n"))
    assert (result.returncode, (site / "theirs" / "a").exists()) == (1, False)


def test_names_of_others_in_a_sticky_folder_are_refused(site: Path) -> None:
    sticky = site / "tmp"
    sticky.mkdir()
    sticky.chmod(0o1777)
    theirs = sticky / "theirs"
    theirs.write_bytes(b"")
    os.chown(theirs, ATTACKER, ATTACKER)
    result = _done("dash", ops.WriteFile(str(theirs), b"content\n"))
    assert (result.returncode, theirs.read_bytes()) == (1, b"")
    assert _done("dash", ops.WriteFile(f"{sticky}/ours", b"content\n")).returncode == 0
    assert (sticky / "ours").stat().st_uid == 0


def test_an_upload_goes_only_where_nobody_else_may_swap_it(site: Path) -> None:
    connection = LocalConnection(("/bin/sh", "-s"))
    with _attacker(site):
        for _ in range(20):
            with pytest.raises(Permanent, match="UPLOAD_FAILED"):
                connection.upload(f"{site}/theirs/sub/blobs/x", b"data", Cancel())
    assert [path.name for path in (site / "victim").iterdir()] == ["shadow"]
    connection.upload(f"{site}/blobs/x", b"data", Cancel())
    assert (site / "blobs" / "x").read_bytes() == b"data"
    assert (site / "blobs").stat().st_mode & 0o777 == 0o700


def test_an_upload_sends_nothing_while_another_run_holds_the_lock(site: Path) -> None:
    if shutil.which("flock") is None:
        pytest.skip("needs flock(1), as hosts do")
    connection = LocalConnection(("/bin/sh", "-s"))
    lock = site / "lock"
    lock.write_text("run-1\tann@pc\t0\t7\n")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UploadLockedError) as raised:
            connection.upload(f"{site}/blobs/x", b"secret", Cancel(), lock=str(lock))
    assert raised.value.holder == b"run-1\tann@pc\t0\t7\n"
    assert list((site / "blobs").iterdir()) == []
    connection.upload(f"{site}/blobs/x", b"secret", Cancel(), lock=str(lock))
    assert lock.read_text() == "run-1\tann@pc\t0\t7\n"
