"""What a node declares of hosts, modules, upgrades and the proxy."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.api.domains import load_inventory as load
from provision.hosts.resources.hosts_file import addresses_of, with_entry
from provision.hosts.roles import base_os
from provision.inventory import Inventory, Subject
from provision.testing.model_host import ModelFile, ModelHost, guest_state
from tests.unit.hosts.converge import converge, killed_everywhere
from tests.unit.hosts.roles.test_shipped_inventories import resources_of

NODE = Subject("node", "n1")


def inventory_of(folder: Path, node: str, top: str = "") -> Inventory:
    (folder / "site.yaml").write_text(
        f"version: 1\nname: site\naccess: {{ user: root }}\n{top}\n"
        f"nodes: {{ n1: {{ address: 10.0.0.9, {node} }} }}\n"
    )
    return load(folder / "site.yaml", environ={})


def host() -> ModelHost:
    return ModelHost("n1/ssh", guest_state())


def apply(inventory: Inventory, machine: ModelHost) -> bool:
    return converge(machine, resources_of(base_os, inventory, NODE, machine))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("127.0.0.1 localhost\n", "127.0.0.1 localhost\n10.0.0.3 reg\n"),
        ("10.0.0.3 reg\n", "10.0.0.3 reg\n"),
        ("10.0.0.4 reg other # old\n", "10.0.0.4 other # old\n10.0.0.3 reg\n"),
        ("10.0.0.4\treg\n10.0.0.3 reg\n", "10.0.0.3 reg\n"),
        ("# 10.0.0.4 reg\n", "# 10.0.0.4 reg\n10.0.0.3 reg\n"),
    ],
)
def test_a_name_has_one_address(before: str, after: str) -> None:
    content = with_entry(before.encode(), "reg", "10.0.0.3")
    assert content.decode() == after
    assert addresses_of(content, "reg") == ["10.0.0.3"]
    assert with_entry(content, "reg", "10.0.0.3") == content


def test_entries_survive_what_cloud_init_writes_at_boot(tmp_path: Path) -> None:
    inventory, machine = inventory_of(tmp_path, "hosts: { reg: 10.0.0.3 }"), host()
    machine.state.files["/etc/hosts"] = ModelFile(b"# 'manage_etc_hosts' is True\n127.0.0.1 localhost\n")
    assert apply(inventory, machine)
    for path in ("/etc/hosts", "/etc/cloud/templates/hosts.debian.tmpl"):
        assert "10.0.0.3 reg" in machine.state.text(path)
    assert not apply(inventory, machine)


def test_modules_upgrades_and_proxy_are_files_of_their_own(tmp_path: Path) -> None:
    inventory = inventory_of(
        tmp_path,
        "modules: [overlay, br_netfilter], unattended_upgrades: keep_kernel",
        "proxy: { url: 'http://10.0.0.2:3128', no_proxy: [reg.lab] }",
    )
    machine = host()
    apply(inventory, machine)
    assert {"overlay", "br_netfilter"} <= machine.state.modules
    assert '"linux-image-";' in machine.state.text("/etc/apt/apt.conf.d/52provision-upgrades")
    proxy = machine.state.text("/etc/apt/apt.conf.d/50provision-proxy")
    assert 'Acquire::https::Proxy "http://10.0.0.2:3128";' in proxy
    assert 'Acquire::http::Proxy::reg.lab "DIRECT";' in proxy
    assert not apply(inventory, machine)


@pytest.mark.parametrize(
    "cards", ["", ", gpu_cards: { count: 1 }, driver: { manage: false, minimum: '570' }"]
)
def test_upgrades_leave_a_driver_alone_that_came_with_the_node(tmp_path: Path, cards: str) -> None:
    machine = host()
    apply(inventory_of(tmp_path, f"unattended_upgrades: keep_kernel{cards}"), machine)
    kept = machine.state.text("/etc/apt/apt.conf.d/52provision-upgrades")
    assert ('"nvidia-";' in kept) is bool(cards)


def test_a_node_that_declares_nothing_has_no_step(tmp_path: Path) -> None:
    assert not base_os.declared(inventory_of(tmp_path, "unattended_upgrades: unmanaged"), NODE)


def test_an_interrupted_run_ends_as_an_uninterrupted_one(tmp_path: Path) -> None:
    inventory = inventory_of(
        tmp_path, "hosts: { reg: 10.0.0.3 }, modules: [overlay], unattended_upgrades: off"
    )
    assert killed_everywhere(host, lambda machine: resources_of(base_os, inventory, NODE, machine)) > 4
