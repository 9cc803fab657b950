"""`make packages`: says what is missing and why, asks for root openly, and enables no SSH server."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "install_packages.sh"
TOOLS = ("ssh", "busybox", "curl", "setpriv")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with a user id, an apt that only writes down its arguments, and no tools."""
    tools = tmp_path / "bin"
    tools.mkdir()
    script(tools / "id", 'echo "$USER_ID"')
    script(tools / "apt-get", f'echo "$@" >>{tmp_path}/apt')
    for name in ("mkdir", "touch"):
        (tools / name).symlink_to(f"/bin/{name}")
    return tmp_path


def script(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def run(machine: Path, user: int) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": str(machine / "bin"),
        "USER_ID": str(user),
        "SSHD": str(machine / "bin" / "sshd"),
        "SSH_FOLDER": str(machine / "ssh"),
    }
    return subprocess.run(
        ["/bin/sh", str(SCRIPT)], env=environment, capture_output=True, text=True, check=False
    )


def test_nothing_is_done_where_nothing_is_missing(machine: Path) -> None:
    for name in (*TOOLS, "sshd"):
        script(machine / "bin" / name, ":")
    result = run(machine, 1000)
    assert (result.returncode, result.stdout) == (0, "")


def test_without_root_it_says_what_to_do_and_installs_nothing(machine: Path) -> None:
    result = run(machine, 1000)
    assert result.returncode == 1
    assert "make test uses openssh-server: tests log in to an SSH server of their own" in result.stdout
    assert "  sudo make packages\n" in result.stdout
    assert [path.name for path in machine.iterdir()] == ["bin"]


def test_as_root_it_installs_what_is_missing_and_keeps_the_ssh_service_off(machine: Path) -> None:
    for name in ("curl", "setpriv"):
        script(machine / "bin" / name, ":")
    result = run(machine, 0)
    assert result.returncode == 0, result.stderr
    assert (machine / "ssh" / "sshd_not_to_be_run").exists()
    installed = (machine / "apt").read_text().splitlines()[-1]
    assert installed.endswith("openssh-server openssh-client busybox")


def test_a_machine_with_an_ssh_server_keeps_it_as_it_is(machine: Path) -> None:
    script(machine / "bin" / "sshd", ":")
    assert run(machine, 0).returncode == 0
    assert not (machine / "ssh").exists()
