from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from provision.connections.contracts import SshEndpoint
from provision.connections.ssh import SHELL, SshConnection
from provision.connections.ssh_target import resolve
from provision.connections.upload import COMMAND


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("user", "command", "sent"),
    [
        ("root", SHELL, "exec /bin/sh -s"),
        ("ann", SHELL, "exec sudo -n /bin/sh -s"),
        ("root", COMMAND, COMMAND),
        ("ann", COMMAND, COMMAND.replace("exec /bin/sh", "exec sudo -n /bin/sh", 1)),
    ],
)
def test_the_remote_command_is_constant_and_users_other_than_root_get_sudo(
    user: str, command: str, sent: str
) -> None:
    assert SshConnection(SshEndpoint("n1", user))._command(command) == sent


def test_without_sudo_the_user_s_own_rights_are_used() -> None:
    assert SshConnection(SshEndpoint("n1", "ann", sudo=False))._command(SHELL) == "exec /bin/sh -s"


def test_the_upload_command_means_the_same_to_every_login_shell() -> None:
    words = shlex.split(COMMAND)
    assert words[:3] == ["exec", "/bin/sh", "-c"]
    assert len(words) == 4
    # within single quotes, csh minds `!` and fish minds backslashes
    assert not re.search(r"[!\\]", words[3])


def test_what_the_inventory_says_wins_over_the_user_s_configuration(home: Path) -> None:
    (home / ".ssh" / "config").write_text(
        "Host n1\n  HostName 10.0.0.1\n  Port 2200\n  User ann\n  IdentityFile ~/.ssh/lab\n"
        "  ProxyJump bob@gate:2222\n"
    )
    target = resolve(SshEndpoint("n1", "root"))
    assert (target.host, target.port, target.user) == ("10.0.0.1", 2200, "root")
    assert target.keys == (home / ".ssh" / "lab",)
    assert not target.only_keys
    assert target.jump is not None
    assert (target.jump.host, target.jump.port, target.jump.user) == ("gate", 2222, "bob")
    explicit = resolve(SshEndpoint("n1", "root", port=22, key=Path("/k"), known_hosts=Path("/h")))
    assert (explicit.port, explicit.keys, explicit.only_keys) == (22, (Path("/k"),), True)
    assert explicit.known_hosts == (Path("/h"),)


def test_several_jump_hosts_follow_each_other() -> None:
    target = resolve(SshEndpoint("n1", "root", jump="a@first:1, b@second:2"))
    assert target.jump is not None
    assert (target.jump.host, target.jump.user, target.jump.port) == ("second", "b", 2)
    assert target.jump.jump is not None
    assert (target.jump.jump.host, target.jump.jump.port) == ("first", 1)
    assert target.jump.jump.jump is None


def test_a_proxy_command_is_used_as_it_is(home: Path) -> None:
    (home / ".ssh" / "config").write_text("Host n1\n  ProxyCommand nc %h %p\n  HostKeyAlias alias\n")
    target = resolve(SshEndpoint("n1", "root"))
    assert (target.command, target.name, target.jump) == ("nc n1 22", "alias", None)
