from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from provision.cli import main
from provision.cli.access import ssh_command
from provision.cli.names import find_inventory
from provision.cli.sites import open_site, read
from provision.connections.contracts import SshEndpoint
from provision.values.cancel import Cancel

KEY = "SHA256:" + "a" * 43
OTHER = "SHA256:" + "B+/" * 14 + "b"


@pytest.mark.parametrize(
    ("endpoint", "argv"),
    [
        (SshEndpoint("pve", "root"), "ssh -l root -- pve"),
        (
            SshEndpoint("198.18.0.11", "debian", 2222, Path("/k"), jump="me@gate"),
            "ssh -l debian -p 2222 -i /k -o IdentitiesOnly=yes -J me@gate -- 198.18.0.11",
        ),
        (
            SshEndpoint("pve", "root", known_hosts=Path("/known")),
            "ssh -l root -o UserKnownHostsFile=/known -o StrictHostKeyChecking=yes -- pve",
        ),
    ],
)
def test_ssh_connects_in_the_same_way_as_provision(endpoint: SshEndpoint, argv: str) -> None:
    assert ssh_command(endpoint) == argv.split()


def test_a_command_follows_the_host() -> None:
    assert ssh_command(SshEndpoint("-evil", "root"), ["uname", "-a"])[-4:] == ["--", "-evil", "uname", "-a"]


def known(argv: list[str], shown: str) -> str:
    """Return what the command says of a host that shows a key, as ssh would run it."""
    option = next(argument for argument in argv if argument.startswith("KnownHostsCommand="))
    command = [
        {"%f": shown, "%H": "host", "%t": "ssh-ed25519", "%K": "AAAA"}.get(word, word)
        for word in shlex.split(option.partition("=")[2])
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_only_accepted_host_keys_are_known() -> None:
    argv = ssh_command(SshEndpoint("pve", "root", fingerprints=(KEY, OTHER)))
    assert "StrictHostKeyChecking=yes" in argv
    assert "UserKnownHostsFile=none" in argv
    assert known(argv, KEY) == "host ssh-ed25519 AAAA\n"
    assert known(argv, OTHER) == "host ssh-ed25519 AAAA\n"
    assert known(argv, "SHA256:" + "c" * 43) == ""
    assert known(argv, "NONE") == ""


@pytest.mark.parametrize("evil", ["*", "SHA256:*) touch /tmp/x;; x", "SHA256:" + "a" * 42])
def test_a_wrong_fingerprint_accepts_no_key(evil: str) -> None:
    argv = ssh_command(SshEndpoint("pve", "root", fingerprints=(evil,)))
    assert evil not in " ".join(argv)
    assert known(argv, KEY) == ""


SITE = """
version: 1
name: small
network: { cidr: 192.168.1.0/24, gateway: 192.168.1.1 }
nodes:
  metal: { address: 192.168.1.9, ssh: { user: root } }
"""


def test_trust_is_kept_beside_the_inventory_and_decides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(SITE)
    site = open_site(read(str(file)))
    before = site.endpoint("metal/ssh", Cancel())
    assert isinstance(before, SshEndpoint)
    assert before.fingerprints == ()
    assert main.main(["trust", str(file), "metal/ssh", KEY]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"Written: {tmp_path / 'small.trust'}"
    after = site.endpoint("metal/ssh", Cancel())
    assert isinstance(after, SshEndpoint)
    assert after.fingerprints == (KEY,)
    assert (tmp_path / "small.trust").is_file()


HELD = (
    """
version: 1
name: small
access: { user: debian, key: ./id }
network:
  cidr: 192.168.1.0/24
  gateway: 192.168.1.1
  dhcp: { backend: dnsmasq, ssh: { host_key: "@KEY" }, range: 192.168.1.100-192.168.1.199 }
images:
  debian-12: { url: https://images.example/debian.img, sha256: "@SHA" }
hypervisors:
  pve:
    address: 192.168.1.5
    api: { token_id: a@pve!b, token: !secret { env: TOKEN }, fingerprint: "@PRINT" }
    ssh:
      host_key: "@KEY"
  here:
    address: 192.168.1.6
    connection: local
    api: { token_id: a@pve!b, token: !secret { env: TOKEN }, fingerprint: "@PRINT" }
nodes:
  vm-1:
    { hypervisor: pve, image: debian-12, vmid: 101, cores: 1, memory: 1GiB, disk: 4GiB, address: 192.168.1.2 }
  metal: { address: 192.168.1.9, ssh: { user: root, host_key: "@KEY" } }
""".replace("@SHA", "ab" * 32)
    .replace("@PRINT", ":".join(["AB"] * 32))
    .replace("@KEY", OTHER)
)


@pytest.mark.parametrize(
    ("system", "why", "remedy"),
    [
        ("pve/ssh", "its key is in the inventory", f"write {KEY} as ssh.host_key at {{file}}:16"),
        ("metal/ssh", "its key is in the inventory", f"write {KEY} as ssh.host_key at {{file}}:24"),
        ("router", "its key is in the inventory", f"write {KEY} as ssh.host_key at {{file}}:8"),
        ("vm-1/ssh", "VM's marker", f"provision import {{file}} vm-1 --host-key {KEY}"),
        ("here/ssh", "without SSH", ""),
    ],
)
def test_trust_without_effect_says_where_the_key_is_decided(
    system: str, why: str, remedy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(HELD)
    assert main.main(["trust", str(file), system, KEY]) == 64
    shown = " ".join(capsys.readouterr().err.split())
    assert "TRUST_WITHOUT_EFFECT" in shown
    assert why in shown
    assert remedy.format(file=file) in shown
    assert not (tmp_path / "small.trust").exists()


def test_trust_knows_the_keys_in_the_file_of_the_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PROVISION_LAB_DIR", str(tmp_path))
    file, overlay = tmp_path / "mine.yaml", tmp_path / "lab" / "site.yaml"
    file.write_text(find_inventory("lab").read_text())
    overlay.parent.mkdir()
    overlay.write_text(f'hypervisors: {{ pve: {{ ssh: {{ host_key: "{OTHER}" }} }} }}\n')
    assert main.main(["trust", str(file), "pve/ssh", KEY]) == 64
    shown = " ".join(capsys.readouterr().err.split())
    assert "TRUST_WITHOUT_EFFECT" in shown
    assert f"its key is in the inventory ({overlay}:1)" in shown
    overlay.unlink()
    assert main.main(["trust", str(file), "pve/ssh", KEY]) == 0


@pytest.mark.parametrize("system", ["pve/ssh", "metal/ssh", "router"])
def test_an_endpoint_says_how_another_key_is_accepted(system: str, tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    trusted = HELD.replace(f', host_key: "{OTHER}"', "").replace(f'host_key: "{OTHER}"', "user: root")
    for text, shown in (
        (HELD, "write {key} as `ssh.host_key`"),
        (trusted, f"`provision trust {file} {system} {{key}}`"),
    ):
        file.write_text(text)
        endpoint = open_site(read(str(file))).endpoint(system, Cancel())
        assert isinstance(endpoint, SshEndpoint)
        assert endpoint.accept.startswith(shown)


@pytest.mark.parametrize(
    ("system", "key"), [("metal/ssh", "SHA256:short"), ("nothing/ssh", KEY), ("metal/api", KEY)]
)
def test_trust_in_nonsense_is_wrong_usage(
    system: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(SITE)
    assert main.main(["trust", str(file), system, key]) == 64
    assert "next:" in capsys.readouterr().err
    assert not (tmp_path / "small.trust").exists()
