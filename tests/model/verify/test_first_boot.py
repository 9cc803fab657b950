"""Checks of a VM that was made and never started, because it is declared to be off."""

from __future__ import annotations

from pathlib import Path

from provision.api.domains import load_inventory as load
from provision.verify.model import CheckOutcome
from tests.model.model_site import ModelSite

INVENTORY = """
version: 1
name: tiny
access: { user: debian, key: ./key }
network: { cidr: 198.18.0.0/24 }
images:
  debian-12: { url: "https://example.org/debian.qcow2", sha256: "@SHA" }
hypervisors:
  pve:
    address: 198.18.0.5
    api:
      url: https://198.18.0.5:8006
      token_id: a@pve!b
      token: !secret { file: ./token }
      fingerprint: "@PRINT"
    ssh: { user: root }
    storage: { images: local, disks: local-lvm, snippets: local }
    bridge: vmbr0
nodes:
  vm:
    hypervisor: pve
    image: debian-12
    cores: 1
    memory: 1GiB
    disk: 4GiB
    vmid: 201
    address: 198.18.0.11
    power: stopped
""".replace("@SHA", "0" * 64).replace("@PRINT", ":".join(["00"] * 32))


def test_a_vm_that_is_declared_off_keeps_what_its_first_boot_needs(tmp_path: Path) -> None:
    for name, text in {"token": "t", "key": "k", "key.pub": "ssh-ed25519 AAAA me"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "tiny.yaml").write_text(INVENTORY)
    site = ModelSite(load(tmp_path / "tiny.yaml"), tmp_path / "state", checks=True)
    site.apply()
    report = site.verify()
    failed = [
        (result.check, result.message) for result in report.checks if result.outcome is CheckOutcome.FAILED
    ]
    assert failed == []
    waiting = {result.check for result in report.checks if "never started" in result.message}
    assert waiting == {"test_first_host_key_is_replaced", "test_no_snippet_is_left"}
