from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from provision.cli import main
from tests.unit.proxmox.roles.world import INVENTORY

ACCESS = "access: { user: debian, key: ./id, jump: me@bastion, known_hosts: ./known hosts }"


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    (tmp_path / "site.yaml").write_text(INVENTORY.replace("access: { user: debian, key: ./id }", ACCESS))
    return tmp_path / "site.yaml"


def printed(capsys: pytest.CaptureFixture[str], inventory: Path, form: str) -> str:
    assert main.main(["output", str(inventory), "--format", form]) == 0
    return capsys.readouterr().out


def test_json_names_every_host_and_how_it_is_reached(
    inventory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = json.loads(printed(capsys, inventory, "json"))
    assert hosts["name"] == "site"
    assert hosts["hypervisors"]["pve"]["address"] == "10.0.0.5"
    assert hosts["nodes"]["vm-1"]["user"] == "debian"
    assert "secret-token" not in json.dumps(hosts)


def test_ansible_gets_groups_and_connections(inventory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    groups = json.loads(printed(capsys, inventory, "ansible"))["all"]["children"]
    assert sorted(groups) == ["hypervisors", "nodes"]
    host = groups["nodes"]["hosts"]["vm-gpu"]
    assert (host["ansible_host"], host["ansible_user"]) == ("10.0.0.12", "debian")
    assert "-o ProxyJump=me@bastion" in host["ansible_ssh_common_args"]


def test_openssh_reads_its_own_configuration(
    inventory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config"
    file.write_text(printed(capsys, inventory, "ssh-config"))
    result = subprocess.run(
        ["ssh", "-G", "-F", str(file), "vm-1"], capture_output=True, text=True, check=True, timeout=20
    )
    lines = result.stdout.splitlines()
    assert {"hostname 10.0.0.11", "user debian", "proxyjump me@bastion", "identitiesonly yes"} <= set(lines)
    assert any(line.startswith("userknownhostsfile") and "known hosts" in line for line in lines)


def test_an_unknown_format_is_wrong_usage(inventory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["output", str(inventory), "--format", "ansibel"]) == 64
    assert "ansible" in capsys.readouterr().err
