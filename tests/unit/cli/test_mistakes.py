"""What people get wrong, through the command line: exit 64, the place, words that help, and no traceback."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from provision.cli import main
from provision.inventory import other_words
from provision.inventory.models.base import Model
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.inventory import Inventory
from provision.inventory.models.node import Node

GOOD = """\
version: 1
name: tiny
network: { cidr: 198.18.0.0/24 }
nodes:
  a: { address: 198.18.0.11, hostname: a }
"""
MISTAKES = {
    "empty": ("", "empty"),
    "only a comment": ("# nothing\n", "empty"),
    "a list": ("- version: 1\n", "mapping"),
    "a word": ("inventory\n", "mapping"),
    "no version": (GOOD.replace("version: 1\n", ""), "version"),
    "another version": (GOOD.replace("version: 1", "version: 2"), "version"),
    "a tab": (GOOD.replace("  a:", "\ta:"), "tab"),
    "a duplicate key": (GOOD + "name: again\n", "name"),
    "a duplicate node": (GOOD + "  a: { address: 198.18.0.12 }\n", "a"),
    "an unknown key": (GOOD.replace("hostname", "hostnam"), "hostname"),
    "a wrong type": (GOOD.replace("{ address: 198.18.0.11, hostname: a }", "[1]"), "nodes"),
    "an unset variable": (GOOD.replace("hostname: a", "hostname: ${NOWHERE_SET}"), "NOWHERE_SET"),
    "a truth of YAML 1.1": (GOOD.replace("hostname: a", "grow_root: yes"), "true"),
    "an address outside": (GOOD.replace("198.18.0.11", "198.18.1.11"), "198.18.1.11"),
    "an address that is none": (GOOD.replace("198.18.0.11", "198.18.0.300"), "198.18.0.300"),
    "an address twice": (GOOD + "  b: { address: 198.18.0.11 }\n", "198.18.0.11"),
    "a dangling reference": (GOOD.replace("hostname: a", "profile: nobody"), "nobody"),
    "a decimal size": (GOOD.replace("hostname: a", "memory: 60GB"), "60GiB"),
    "a plain secret": (
        GOOD.replace("hostname: a", "host_resources: [{ kind: file, path: /x, secret: hunter2 }]"),
        "!secret",
    ),
    "an unknown tag": (GOOD.replace("hostname: a", "hostname: !vault a"), "!vault"),
    "an exploding alias": (
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(
            f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n"
            for old, new in zip("abcdefg", "bcdefgh", strict=True)
        ),
        "",
    ),
    "a brace left open": (GOOD.replace("hostname: a }", "hostname: a"), "the bracket that begins here"),
    "a quote left open": (GOOD.replace("name: tiny", 'name: "tiny'), "the quote that begins here"),
    "a wrong column": (GOOD + "   b: { address: 198.18.0.12 }\n", "in the same column"),
    "a colon left out": (GOOD.replace("name: tiny", "name tiny"), "without ':'"),
    "nodes as a list": (GOOD[: GOOD.index("  a:")] + "  - a\n", "without a dash"),
    "no list": (GOOD.replace("hostname: a", "tags: a"), "tags: [a]"),
    "a word for a section": (GOOD + "k3s: latest\n", "known keys of k3s: version"),
    "a resource without a kind": (
        GOOD.replace("hostname: a", "host_resources: [{ package: htop }]"),
        "{ kind: package, name: htop }",
    ),
    "an address with its network": (
        GOOD.replace("198.18.0.11", "198.18.0.11/24"),
        "did you mean 198.18.0.11?",
    ),
    "an image that nobody declares": (GOOD.replace("hostname: a", "profile: small"), "under profiles"),
    "an unlike key": (GOOD + "qqq: 1\n", "known keys of the inventory: version, name"),
    "a playbook of Ansible": ("- hosts: all\n  tasks: []\n", "found a list"),
    "an inventory of Ansible": ("[all]\nvm1 ansible_host=198.18.0.12\n", "`key: value`"),
    "two documents": (GOOD + "---\n" + GOOD, ""),
    "no text": ("\x00\x01", ""),
    "an undefined base": ("extends: nowhere.yaml\n" + GOOD, "nowhere.yaml"),
}
COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "validate": lambda file: ["validate", file],
    "plan": lambda file: ["plan", file],
    "apply": lambda file: ["apply", file, "--yes"],
    "destroy": lambda file: ["destroy", file, "--yes", "--allow", "delete"],
    "verify": lambda file: ["verify", file],
    "graph": lambda file: ["graph", file],
    "lab up": lambda file: ["lab", "up", file],
}


@pytest.fixture(autouse=True)
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_STATE", str(tmp_path / "state"))


def fails(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main.main(argv) == 64
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    assert captured.err
    return captured.err


WORDS = {
    "vms: {}": "nodes?",
    "hosts: {}": "nodes (hosts of Proxmox VE: hypervisors)?",
    "gpus: {}": "hypervisors.NAME.cards and nodes.NAME.gpus?",
    "users: []": "access?",
    "gateway: 198.18.0.1": "network.gateway?",
    "nodes: { a: { ram: 4GiB } }": "memory?",
    "nodes: { a: { ip: 198.18.0.11 } }": "address?",
    "profiles: { a: { template: debian } }": "image?",
    "hypervisors: { pve: { token: x } }": "api?",
}


@pytest.mark.parametrize("line", WORDS)
def test_words_of_other_tools_are_answered_with_ours(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(f"version: 1\nname: tiny\n{line}\n")
    assert f"did you mean {WORDS[line]}" in fails(["validate", str(file)], capsys)


def test_our_words_for_those_of_other_tools_are_keys() -> None:
    sections: dict[str, type[Model]] = {"": Inventory, "nodes": Node, "hypervisors": Hypervisor}
    tables = {"": other_words.TOP, "nodes": other_words.NODE, "hypervisors": other_words.HYPERVISOR}
    for section, words in tables.items():
        for theirs, ours in words.items():
            first = re.match(r"[a-z0-9_]+", ours)
            assert theirs not in sections[section].model_fields
            if first is not None and "top of the file" not in ours and "of a node" not in ours:
                assert first[0] in sections[section].model_fields, theirs


def test_a_folder_is_answered_with_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "site.yaml").write_text(GOOD)
    assert "name a file in it: site.yaml" in fails(["validate", str(tmp_path)], capsys)
    assert "site.yaml" in fails(["validate", str(tmp_path / "sit.yml")], capsys)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_file(mistake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, named = MISTAKES[mistake]
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    shown = fails(["validate", str(file)], capsys)
    assert "wrong.yaml" in shown
    assert named in shown
    assert "hunter2" not in shown


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("mistake", ["empty", "a tab", "an unknown key", "an unset variable"])
def test_every_command_reports_the_mistake(
    command: str, mistake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(MISTAKES[mistake][0])
    assert "wrong.yaml" in fails(COMMANDS[command](str(file)), capsys)
    assert not (tmp_path / "state").exists(), "nothing begins"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_is_not_there(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "absent.yaml" in fails(COMMANDS[command](str(tmp_path / "absent.yaml")), capsys)


def test_a_file_that_is_huge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "huge.yaml"
    with file.open("wb") as stream:
        stream.truncate(50 << 20)
    assert "huge.yaml" in fails(["validate", str(file)], capsys)


def test_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fails(["plan", str(tmp_path)], capsys)


@pytest.mark.parametrize(
    "argv",
    [
        ["aply", "x.yaml"],
        ["apply", "x.yaml", "--yess"],
        ["apply", "x.yaml", "--allow", "reboot"],
        ["apply", "x.yaml", "y.yaml"],
        ["apply"],
        ["lab"],
        ["lab", "start", "x.yaml"],
        ["plan", "--out"],
    ],
)
def test_wrong_words_on_the_command_line_are_refused(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    fails(argv, capsys)


@pytest.mark.parametrize("words", [["--target", "nobody"], ["--step", "nothing"], ["--playbook", "nowhere"]])
def test_unknown_names_are_refused(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "good.yaml"
    file.write_text(GOOD)
    assert words[1] in fails(["plan", str(file), *words], capsys)


@pytest.mark.parametrize(
    ("target", "remedy"),
    [
        ("pve", "write root@pve:"),
        ("admin@pve.lan", "write root@pve.lan:"),
        ("https://192.0.2.5:8006", "write root@192.0.2.5:"),
        ("https://root@192.0.2.5:8006/#v1", "write root@192.0.2.5:"),
        ("root@", "write root@HOST:"),
        ("root@[2001:db8::5]", "write root@HOST:"),
    ],
)
@pytest.mark.parametrize("command", ["bootstrap", "discover"])
def test_the_login_of_a_hypervisor_is_told(
    capsys: pytest.CaptureFixture[str], command: str, target: str, remedy: str
) -> None:
    assert main.main([command, target]) == 64
    said = " ".join((captured := capsys.readouterr()).out.split() + captured.err.split())
    assert "TARGET_WRONG" in said
    assert remedy in said
