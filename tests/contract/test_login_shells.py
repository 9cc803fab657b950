"""The remote command in real login shells, which run it as sshd does, and real sudo."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from provision.connections import upload
from provision.connections.local import LocalConnection
from provision.connections.ssh import SHELL
from provision.contracts.driver import Action, Verdict
from provision.contracts.remedy import Fix
from provision.hosts.driver import HostDriver
from provision.values.cancel import Cancel
from provision.values.errors import Permanent

SHELLS = {
    "dash": ("dash",),
    "bash": ("bash",),
    "busybox": ("busybox", "ash"),
    "zsh": ("zsh",),
    "fish": ("fish",),
    "tcsh": ("tcsh",),
    "ksh": ("ksh",),
}
NOBODY = 65534


def login(*words: str) -> LocalConnection:
    """Return a connection whose script a login shell's command reads."""
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    return LocalConnection((*words, "-c", SHELL))


@pytest.mark.parametrize("words", SHELLS.values(), ids=SHELLS.keys())
def test_a_script_runs_whatever_the_login_shell_is(words: tuple[str, ...], tmp_path: Path) -> None:
    host = HostDriver("n1/ssh", login(*words), {}, who="w", state=str(tmp_path / "state"))
    action = Action(None, "fix", Fix("printf '%s ' one \"two three\" '!$x\\y'; echo é"))
    (result,) = host.act("r", [action], [], lambda _: None, Cancel())
    assert result.verdict is Verdict.DONE
    assert result.output == ("one two three !$x\\y é",)


@pytest.mark.parametrize("words", SHELLS.values(), ids=SHELLS.keys())
def test_an_upload_works_whatever_the_login_shell_is(words: tuple[str, ...], tmp_path: Path) -> None:
    login(*words)
    target = tmp_path / "blob"
    result = subprocess.run(
        (*words, "-c", upload.COMMAND),
        input=upload.opening(str(target), 5, "") + b"he!$\\",
        capture_output=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert target.read_bytes() == b"he!$\\"


def test_a_restricted_shell_is_named() -> None:
    host = HostDriver("n1/ssh", login("bash", "--restricted"), {}, who="w")
    with pytest.raises(Permanent, match="NO_SHELL") as caught:
        host.answer(frozenset(), Cancel())
    assert "restricted" in caught.value.diagnostics[0].evidence[-1]


@pytest.mark.skipif(shutil.which("sudo") is None, reason="sudo is not installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(
    "rule", ["", "nobody ALL=(ALL) ALL\n", "nobody ALL=(ALL) ALL\nDefaults lecture=always\n"]
)
def test_real_sudo_without_a_password_says_what_it_needs(rule: str, tmp_path: Path) -> None:
    name = pwd.getpwuid(NOBODY).pw_name
    own = Path("/etc/sudoers.d/provision-test")
    own.write_text(rule.replace("nobody", name))
    own.chmod(0o440)
    try:
        code = "SUDO_NEEDS_PASSWORD" if rule else "SUDO_"
        as_nobody = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "sudo", "-n")
        connection = LocalConnection((*as_nobody, "/bin/sh", "-s"))
        connection.uses_sudo = True
        host = HostDriver("n1/ssh", connection, {}, who="w", state=str(tmp_path))
        with pytest.raises(Permanent, match=code):
            host.answer(frozenset(), Cancel())
    finally:
        own.unlink()


def test_messages_are_english_whatever_the_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    connection = LocalConnection((sys.executable, "-c", "import os; print(os.environ['LC_ALL'])"))
    said = b""

    def take(data: bytes, _stderr: bool) -> None:
        nonlocal said
        said += data

    connection.execute(b"", on_output=take, cancel=Cancel())
    assert said == b"C\n"
