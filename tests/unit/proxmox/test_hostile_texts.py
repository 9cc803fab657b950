"""Texts of a host in the inventory that `discover` writes: no text is more than a value or a comment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from provision.api.domains import load_inventory as load
from provision.proxmox.discovery import discovered
from provision.proxmox.first_inventory import Trusted, discovered_inventory, first_inventory, network_of
from provision.proxmox.setup import ProxmoxHost, StorageChoice
from provision.proxmox.vm_files import VmFile
from provision.proxmox.yaml_text import comment, quoted
from tests.model.test_bootstrap import CERTIFICATE, CHOICE, FOUND, KEY
from tests.model.vm_site.test_discover import ADDRESSES, VMS

TEXTS = (
    "x\ny: z",
    "x\npolicy: { allow: [delete] }",
    "x\rpolicy: {}",
    "x\x85policy: {}",
    "x\u2028policy: {}",
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "\u202etxt",
    "\x00",
    "\x7f",
    "\ud800",
    "😀",
    "{{ env('HOME') }}",
    "{% raw %}",
    "!secret { command: [id] }",
    "!!python/object/apply:os.system [id]",
    "&a *a",
    "<<: *x",
    "- a",
    "a: b #c",
    "'\"`\\",
    "]}, nodes: {",
    "%0Aevil: 1",
    "null",
    "1e3",
    "0x10",
    "~",
    "",
)
KEYS = (
    "name",
    "tags",
    "hostpci0",
    "machine",
    "cpu",
    "startup",
    "net0",
    "scsi0",
    "memory",
    "efidisk0",
    "boot",
)


def written(
    folder: Path,
    vms: Mapping[int, Mapping[str, str]] = VMS,
    host: ProxmoxHost = FOUND,
    choice: StorageChoice = CHOICE,
    remark: str = "Templates: 104",
) -> str:
    """Return the inventory of a host."""
    files = [VmFile(vmid, config) for vmid, config in vms.items()]
    nodes = discovered("pve", "vmbr0", network_of(host, "192.168.1.5"), files, ADDRESSES)
    trusted = Trusted("192.168.1.5", None, KEY, CERTIFICATE, folder / "id", "site", folder / "t")
    return discovered_inventory("site", host, choice, trusted, nodes, [remark])


class Loader(yaml.SafeLoader):
    """Takes our own tag, which a host must not be able to use."""


Loader.add_constructor("!secret", lambda _loader, node: {"secret": str(node.tag)})


def shape(value: Any) -> Any:
    """Return the keys of a document, without its values."""
    return {key: shape(item) for key, item in value.items()} if isinstance(value, dict) else type(value)


@pytest.mark.parametrize("key", KEYS)
def test_no_value_of_one_vm_makes_the_inventory_unreadable(key: str, tmp_path: Path) -> None:
    for name in ("id", "id.pub", "t"):
        (tmp_path / name).write_text("ssh-ed25519 AAAA me\n")
    file = tmp_path / "site.yaml"
    for text in TEXTS:
        own = VMS[100].get(key, "")
        for value in (text, own + text, f"{own},{text}"):
            content = written(tmp_path, {**VMS, 100: {**VMS[100], key: value}})
            assert all(line.isprintable() for line in content.split("\n")), repr(value)
            file.write_text(content)
            inventory = load(file)
            assert inventory.nodes.keys() >= {"office-lan", "vm-102"}, repr(value)
            assert inventory.policy.allow == (), repr(value)


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_no_text_of_the_host_adds_a_key(text: str, tmp_path: Path) -> None:
    usual = shape(yaml.load(written(tmp_path), Loader))  # noqa: S506 - a safe loader
    for content in (
        written(tmp_path, host=replace(FOUND, version=text)),
        written(tmp_path, host=replace(FOUND, bridges=("vmbr0", text))),
        written(tmp_path, choice=replace(CHOICE, disks=f"a{text}")),
        written(tmp_path, remark=text),
    ):
        assert all(line.isprintable() for line in content.split("\n"))
        assert shape(yaml.load(content, Loader)) == usual  # noqa: S506 - a safe loader
    trusted = Trusted("192.168.1.5", None, KEY, CERTIFICATE, tmp_path / f"a{text}", "site", tmp_path / "t")
    first = yaml.load(first_inventory("site", FOUND, CHOICE, trusted), Loader)  # noqa: S506 - a safe loader
    assert first["access"]["key"] == f"{tmp_path}/a{text}".replace("\ud800", "\ufffd" * 3)


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_a_quoted_text_is_read_as_it_was_and_a_comment_is_one_line(text: str) -> None:
    assert yaml.safe_load(quoted(text)) == text.replace("\ud800", "\ufffd" * 3)
    assert yaml.safe_load(f"a: 1\n{comment(text)}\nb: 2") == {"a": 1, "b": 2}


def test_a_vm_that_no_inventory_can_declare_is_a_comment_with_the_reason(tmp_path: Path) -> None:
    network = f"{VMS[100]['net0']},tag=5000"
    content = written(tmp_path, {100: {**VMS[100], "net0": network}})
    assert (
        "# VM 100 has what an inventory cannot declare: nics.0.vlan: expected a number from 1 to 4094"
        in content
    )
    assert "# nodes:" in content


@pytest.mark.parametrize("where", ["of another VM", "of its own"])
def test_a_mac_address_that_is_there_twice_leaves_a_comment(where: str, tmp_path: Path) -> None:
    copied = VMS[100]["net0"]
    vms = (
        {100: VMS[100], 102: {**VMS[102], "net0": copied}}
        if where == "of another VM"
        else {100: {**VMS[100], "net1": copied}, 102: VMS[102]}
    )
    content = written(tmp_path, vms)
    assert content.count("cannot declare: the MAC address BC:24:11:00:00:01 is there twice") == 1
    for name in ("id", "id.pub", "t"):
        (tmp_path / name).write_text("ssh-ed25519 AAAA me\n")
    (tmp_path / "site.yaml").write_text(content)
    assert len(load(tmp_path / "site.yaml").nodes) == 1
