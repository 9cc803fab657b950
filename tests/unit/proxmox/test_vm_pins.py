"""Versions of the machine type, the serial console, tags that are no longer declared, and pools."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from provision.api.domains import load_inventory as load
from provision.contracts.change import Op
from provision.inventory import Inventory
from provision.proxmox import pools
from provision.proxmox.marker import Marker, read, read_smbios1, smbios1
from provision.proxmox.resources.vm import Vm
from tests.unit.proxmox.roles.world import INVENTORY, World
from tests.unit.proxmox.test_vm import CONFIG, MARK, VM, calls, vm_snapshot

POOLED = INVENTORY.replace("vmid: 101,", "vmid: 101, pool: lab,")


def with_setting(key: str, value: str) -> Vm:
    return replace(VM, settings=tuple({**dict(VM.settings), key: value}.items()))


def sent(vm: Vm, **config: str | None) -> dict[str, object]:
    (request,) = calls(vm, vm_snapshot(**config)).requests
    return {key: value for key, value in request.data.items() if key != "digest"}


@pytest.mark.parametrize(
    ("declared", "present", "written"),
    [
        ("pc-q35-10.1", "pc-q35-10.1", None),
        ("pc-q35-10.1", "type=pc-q35-10.1,viommu=intel", None),
        ("pc-q35-10.1", "pc-q35-9.2+pve1", "pc-q35-10.1"),
        ("pc-q35-10.1", "q35", "pc-q35-10.1"),
        ("pc-q35-10.1", "q35,viommu=intel", "type=pc-q35-10.1,viommu=intel"),
        ("q35", "pc-q35-9.2", None),
        ("q35", "pc-i440fx-9.2", "q35"),
        ("pc-i440fx-9.2", "pc-i440fx-9.2", None),
        ("pc-i440fx-9.2", "pc", "pc-i440fx-9.2"),
    ],
)
def test_a_declared_version_of_the_machine_is_kept(declared: str, present: str, written: str | None) -> None:
    vm = with_setting("machine", declared)
    if written is None:
        assert vm.changes(vm_snapshot(machine=present)) == ()
    else:
        assert sent(vm, machine=present) == {"machine": written}


def test_a_serial_console_that_somebody_removed_comes_back() -> None:
    vm = with_setting("serial0", "socket")
    assert vm.changes(vm_snapshot(serial0="socket")) == ()
    assert sent(vm) == {"serial0": "socket"}
    assert VM.changes(vm_snapshot(serial0=None)) == (), "one that is not declared is left alone"


def test_a_vm_without_a_serial_console_loses_it() -> None:
    vm = with_setting("serial0", "")
    (change,) = vm.changes(vm_snapshot(serial0="socket"))
    assert (change.op, change.path, change.new) == (Op.DELETE, "serial0", None)
    assert sent(vm, serial0="socket") == {"delete": "serial0"}
    create = vm._create_requests()[0].data
    assert "serial0" not in create
    assert VM._create_requests()[0].data["serial0"] == "socket"


def test_a_tag_that_is_no_longer_declared_goes() -> None:
    noted = replace(MARK, tags="gpu,old")
    vm = replace(VM, tags=("gpu",))
    data = sent(vm, tags="gpu;mine;old;provision", description=f"mine\n{noted}")
    assert data["tags"] == "gpu;mine;provision", "tags of others stay"
    marker = read(str(data["description"]))
    assert marker is not None
    assert marker.tags == "gpu"
    assert vm.changes(vm_snapshot(tags="gpu;mine;provision", description=str(data["description"]))) == ()


def test_declared_tags_are_noted_with_the_vm() -> None:
    vm = replace(VM, tags=("gpu",), marker=replace(MARK, tags="gpu"))
    assert "tags=gpu" in str(vm._create_requests()[0].data["description"])
    assert set(sent(vm, description=CONFIG["description"])) == {"description"}, "an older marker has none"


def test_the_second_home_of_the_marker_needs_no_tags() -> None:
    marker = Marker("lab", "vm-1", "SHA256:x", tags="a,b")
    kept = read_smbios1(smbios1(marker, 101, "BC:24:11:00:00:01"), 101, "vm-1", ())
    assert kept == replace(marker, tags="")


# ---------------------------------------------------------------- pools


@pytest.mark.parametrize(
    ("line", "inside"),
    [
        ("pool:lab::101::", True),
        ("pool:lab:a comment%3A:100,101,102:local:", True),
        ("pool:lab::100,1010:local:", False),
        ("pool:lab::::", False),
        ("pool:lab2::101::", False),
        ("pool:lab/sub::101::", False),
        ("pool:other::101::", False),
        ("acl:1:/pool/lab:u@pve:101:", False),
    ],
)
def test_membership_is_read_from_the_file_of_users(
    inventory: Inventory, tmp_path: Path, line: str, inside: bool
) -> None:
    users = tmp_path / "user.cfg"
    users.write_text(f"user:root@pam:1:0::::::\n{line}\n")
    command = pools.membership(inventory, inventory.nodes["vm-1"]).command.replace(pools.USERS, str(users))
    assert (subprocess.run(["sh", "-c", command], check=False, timeout=10).returncode == 0) is inside


def test_a_vm_in_another_pool_is_moved_on_its_host(inventory: Inventory, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(POOLED)
    world.apply()
    assert world.pve.pools == {101: "lab"}
    world.host.probes[pools.membership(inventory, inventory.nodes["vm-1"]).command] = 0
    assert world.plan().empty
    world.host.probes.clear()
    (planned,) = [change for step in world.plan().steps for change in step.changes]
    assert (planned.key.system, planned.key.name) == ("pve/ssh", "pool lab of vm-1")
    world.apply()
    assert world.plan().empty


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    (tmp_path / "pooled.yaml").write_text(POOLED)
    return load(tmp_path / "pooled.yaml")
