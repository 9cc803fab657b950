"""What ssh(1) makes of ~/.ssh/config, and what we connect to: the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from provision.connections import ssh_config
from provision.connections.contracts import SshEndpoint
from provision.connections.ssh_target import Target, resolve
from provision.values.errors import Permanent

if shutil.which("ssh") is None:
    pytest.skip("ssh is not installed", allow_module_level=True)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".ssh" / "config.d").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def resolved(home: Path, config: str, host: str = "n1", **changes: object) -> Target:
    (home / ".ssh" / "config").write_text(config)
    return resolve(SshEndpoint(host, "root", **changes))  # type: ignore[arg-type]  # named by the test


INCLUDED = """\
Host 10.0.0.5 pve
  User root
  Port 2222
  IdentityFile ~/.ssh/lab_key
  IdentitiesOnly yes
  ProxyJump bastion
  UserKnownHostsFile ~/.ssh/known_lab
Host bastion
  HostName 192.0.2.1
  User jump
"""


def test_included_files_and_match_blocks_count_as_in_ssh(home: Path) -> None:
    (home / ".ssh" / "config.d" / "lab.conf").write_text(INCLUDED)
    (home / ".ssh" / "config.local").write_text("Host 10.0.0.9\n  Port 2299\n")
    config = (
        "Include config.d/*.conf\n\nHost *\n  ServerAliveInterval 30\n"
        "Match all\n  Include ~/.ssh/config.local\n"
    )
    target = resolved(home, config, "10.0.0.5")
    assert (target.host, target.port, target.user) == ("10.0.0.5", 2222, "root")
    assert (target.keys, target.only_keys) == ((home / ".ssh" / "lab_key",), True)
    assert target.known_hosts[0] == home / ".ssh" / "known_lab"
    assert target.jump is not None
    assert (target.jump.host, target.jump.user, target.jump.port) == ("192.0.2.1", "jump", 22)
    assert target.jump.known_hosts[0] == home / ".ssh" / "known_hosts"
    assert resolved(home, config, "10.0.0.9").port == 2299


SHAPES = {
    "a quoted path with blanks": ('Host n1\n IdentityFile "~/my keys/lab"\n', "keys", ("~/my keys/lab",)),
    "a path with an equals sign": ("Host n1\n IdentityFile=~/lab\n", "keys", ("~/lab",)),
    "tokens in a path": ("Host n1\n IdentityFile ~/.ssh/%n-%r\n", "keys", ("~/.ssh/n1-root",)),
    "a variable in a path": ("Host n1\n IdentityFile ${HOME}/lab\n", "keys", ("~/lab",)),
    "two keys in their order": ("Host n1\n IdentityFile ~/b\n IdentityFile ~/a\n", "keys", ("~/b", "~/a")),
    "no key": ("Host n1\n Port 5\n", "keys", ()),
    "the first value wins": ("Host n*\n Port 2201\nHost n1\n Port 2202\n", "port", 2201),
    "a negated pattern": ("Host * !n1\n Port 2201\nHost n1\n Port 2202\n", "port", 2202),
    "keywords in capitals": ("HOST n1\n PORT 2203\n", "port", 2203),
    "a match by user": ("Match user root host n1\n Port 2204\n", "port", 2204),
    "a match by command": ('Match exec "test %h = n1"\n Port 2205\n', "port", 2205),
    "a match of another host": ("Match host n2\n Port 2206\n", "port", 22),
    "a host name with a token": ("Host n1\n HostName %h.lan\n", "host", "n1.lan"),
    "an alias of the host key": ("Host n1\n HostName 10.0.0.1\n HostKeyAlias lab\n", "name", "lab"),
    "the name of the host key": ("Host n1\n HostName 10.0.0.1\n", "name", "10.0.0.1"),
    "no agent": ("Host n1\n IdentityAgent none\n", "agent", "none"),
    "another agent": (
        "Host n1\n IdentityAgent ~/.1password/agent.sock\n",
        "agent",
        "~/.1password/agent.sock",
    ),
    "a command with tokens": ("Host n1\n ProxyCommand nc -q0 %h %p\n", "command", "nc -q0 n1 22"),
    "no command": ("Host n1\n ProxyCommand none\nHost *\n ProxyJump gate\n", "command", ""),
    "no jump": ("Host n1\n ProxyJump none\nHost *\n ProxyJump gate\n", "jump", None),
    # shapes of public reports: paramiko#717, #897, #1992, asyncssh#713, netmiko#353, sshtunnel#240, assh#99
    "a final match": ("Host n1\n User bob\nMatch final host n1\n Port 2208\n", "port", 2208),
    "a negated command": ('Match host n1 !exec "false"\n Port 2209\n', "port", 2209),
    "a match of the name that was given": (
        "Host n1\n HostName x.lan\nMatch originalhost n1\n Port 2210\n",
        "port",
        2210,
    ),
    "a match of the name that is meant": (
        "Host n1\n HostName x.lan\nMatch host x.lan\n Port 2211\n",
        "port",
        2211,
    ),
    "a match that does not follow the given name": (
        "Host n1\n HostName x.lan\nMatch host n1\n Port 2212\n",
        "port",
        22,
    ),
    "canonical names that nobody knows": (
        "CanonicalizeHostname yes\nCanonicalDomains invalid.\nHost n1\n Port 2213\n",
        "port",
        2213,
    ),
    "a pattern of single letters": ("Host n?\n Port 2214\n", "port", 2214),
    "a pattern with a comma is one name": ("Host n1,n2\n Port 2215\n", "port", 22),
    "a comment behind a value": ("Host n1\n Port 2216 # lab\n", "port", 2216),
    "line ends of Windows": ("Host n1\r\n Port 2217\r\n", "port", 2217),
    "tabs": ("Host\tn1\n\tPort\t2218\n", "port", 2218),
    "an include in a host block": ("Host n1\n Include only\nHost *\n Port 2219\n", "port", 2221),
    "an include in another host's block": ("Host n2\n Include only\nHost *\n Port 2220\n", "port", 2220),
    "an include that finds nothing": ("Include none/*\nHost n1\n Port 2222\n", "port", 2222),
    "a key file with the login's name": ("Host n1\n IdentityFile ~/%r@%h\n", "keys", ("~/root@n1",)),
    "a percent sign": ("Host n1\n IdentityFile ~/a%%b\n", "keys", ("~/a%b",)),
    "a command with a pipe and the login": (
        "Host n1\n ProxyCommand ssh gate -W %h:%p | tee /tmp/%r\n",
        "command",
        "ssh gate -W n1:22 | tee /tmp/root",
    ),
    "the agent of the environment": ("Host n1\n IdentityAgent SSH_AUTH_SOCK\n", "agent", ""),
    "an agent of a variable": ("Host n1\n IdentityAgent ${HOME}/a.sock\n", "agent", "~/a.sock"),
    "no key but those of a file": ("Host n1\n IdentitiesOnly yes\n IdentityFile none\n", "keys", ()),
    "a source address": ("Host n1\n BindAddress 127.0.0.9\n", "bind", "127.0.0.9"),
    "a source device": ("Host n1\n BindInterface lo\n", "device", "lo"),
    "one kind of addresses": ("Host n1\n AddressFamily inet6\n", "family", "inet6"),
}


@pytest.mark.parametrize(("config", "field", "value"), SHAPES.values(), ids=SHAPES.keys())
def test_what_ssh_says_is_used(home: Path, config: str, field: str, value: object) -> None:
    (home / ".ssh" / "only").write_text("Port 2221\n")
    answer = getattr(resolved(home, config), field)
    if field == "keys":
        assert [str(path) for path in answer] == [
            name.replace("~", str(home), 1)
            for name in value  # type: ignore[attr-defined]  # a tuple in the table
        ]
    elif field == "agent":
        assert answer == str(value).replace("~", str(home), 1)
    else:
        assert answer == value


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("~/.ssh/known_lab", ["~/.ssh/known_lab"]),
        ("~/.ssh/a ~/.ssh/b", ["~/.ssh/a", "~/.ssh/b"]),
        ('"~/.ssh/known hosts" /etc/lab/known', ["~/.ssh/known hosts", "/etc/lab/known"]),
        ("none", []),
    ],
)
def test_known_hosts_files_are_those_of_ssh(home: Path, value: str, names: list[str]) -> None:
    target = resolved(home, f"Host n1\n UserKnownHostsFile {value}\n GlobalKnownHostsFile /etc/k1 /etc/k2\n")
    expected = [name.replace("~", str(home), 1) for name in names]
    assert [str(path) for path in target.known_hosts] == [*expected, "/etc/k1", "/etc/k2"]


@pytest.mark.parametrize(
    ("jump", "hops"),
    [
        ("gate", [("gate", "me", 22)]),
        ("bob@gate:2222", [("gate", "bob", 2222)]),
        ("a,b@c:5", [("c", "b", 5), ("a", "me", 22)]),
        ("ssh://bob@gate:2222", [("gate", "bob", 2222)]),
        ("[fd00::1]:2222", [("fd00::1", "me", 2222)]),
        ("x@corp@gate", [("gate", "x@corp", 22)]),
    ],
)
def test_jump_hosts_are_those_of_ssh(home: Path, jump: str, hops: list[tuple[str, str, int]]) -> None:
    target: Target | None = resolved(
        home, f"Host n1\n ProxyJump {jump}\nMatch host gate,a,fd00::1\n User me\n"
    )
    for hop in hops:
        assert target is not None
        target = target.jump
        assert target is not None
        assert (target.host, target.user, target.port) == hop
    assert target is not None
    assert target.jump is None


def test_a_jump_host_may_have_a_jump_host_of_its_own(home: Path) -> None:
    target = resolved(home, "Host n1\n ProxyJump inner\nHost inner\n ProxyJump outer\n")
    assert target.jump is not None
    assert target.jump.jump is not None
    assert (target.jump.host, target.jump.jump.host) == ("inner", "outer")


def test_a_jump_host_of_the_inventory_wins(home: Path) -> None:
    target = resolved(home, "Host n1\n ProxyJump other\nHost gate\n Port 2222\n", jump="gate")
    assert target.jump is not None
    assert (target.jump.host, target.jump.port) == ("gate", 2222)


def test_jump_hosts_that_lead_nowhere_are_refused(home: Path) -> None:
    with pytest.raises(Permanent, match="SSH_JUMP_LOOP"):
        resolved(home, "Host n1 b\n ProxyJump a\nHost a\n ProxyJump b\n")
    with pytest.raises(
        Permanent, match="SSH_CONFIG_UNREADABLE"
    ) as caught:  # ssh(1) sees a host behind itself
        resolved(home, "Host *\n ProxyJump gate\n")
    assert "jumphost loop" in "".join(caught.value.diagnostics[0].evidence)


@pytest.mark.parametrize("config", ["Host n1\n Prot 22\n", "Host n1\n Port many\n", 'Host n1\n User "x\n'])
def test_a_configuration_that_ssh_refuses_is_no_connection(home: Path, config: str) -> None:
    with pytest.raises(Permanent, match="SSH_CONFIG_UNREADABLE") as caught:
        resolved(home, config)
    assert caught.value.diagnostics[0].evidence
    assert "ssh -G n1" in caught.value.diagnostics[0].remedy


def test_without_ssh_a_configuration_is_unknown_not_absent(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Permanent, match="SSH_CONFIG_UNREADABLE") as caught:
        resolved(home, "Host n1\n Port 2222\n", "n-without-ssh")
    assert "not installed" in caught.value.diagnostics[0].evidence[0]


def test_without_a_configuration_ssh_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    target = resolve(SshEndpoint("n1", "root", jump="bob@gate:23"))
    assert target.jump is not None
    assert (target.port, target.jump.host, target.jump.user, target.jump.port) == (22, "gate", "bob", 23)


def test_a_host_is_asked_for_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = "Host *\n Port 2207\n"
    ports = {resolved(home, config, "one-of-many").port}
    monkeypatch.setenv("PATH", "/nowhere")  # another process could not be started
    ports.add(resolve(SshEndpoint("one-of-many", "root")).port)
    assert ports == {2207}


@pytest.mark.parametrize(
    ("text", "matters"),
    [
        ("Host *\n    SendEnv LANG LC_*\n    HashKnownHosts yes\n", False),
        ("Host *.lan\n  ProxyJump gate\n", True),
        ("Host *\n  UserKnownHostsFile /etc/lab/known\n", True),
        ("# Port 22\n\n", False),
    ],
)
def test_the_machine_s_own_configuration_counts_where_it_matters(
    home: Path, monkeypatch: pytest.MonkeyPatch, text: str, matters: bool
) -> None:
    (home / "system").write_text(text)
    monkeypatch.setattr(ssh_config, "SYSTEM_CONFIG", home / "system")
    assert ssh_config.applies() == matters
