"""A card that is declared raw is passed by its address, as root, and by nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from provision.api.domains import load_inventory
from provision.api.vm_marker import mark_for_rebuild
from provision.connections.contracts import HttpsEndpoint
from provision.connections.ssh_pool import SshPool
from provision.contracts.domain import Opening
from provision.proxmox.driver import ProxmoxDriver
from provision.proxmox.systems import open_api, systems
from provision.values.cancel import Cancel
from provision.values.errors import UsageError
from tests.model.test_vm_kills import dying
from tests.unit.proxmox.roles.world import INVENTORY, World

RAW = INVENTORY.replace("drives_console: true", "drives_console: true, raw: true").replace(
    "    api: {", "    api: { root_password: !secret { file: ./root },"
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.write(RAW)
    (tmp_path / "root").write_text("root-password\n")
    world.pve.has_root = True
    return world


def raw_requests(world: World) -> list[tuple[str, str]]:
    return [(method, path) for method, path, data in world.pve.log if "hostpci" in str(data)]


def test_it_is_passed_after_the_vm_is_made_and_before_it_starts(world: World) -> None:
    assert world.apply().exit_code == 0
    assert world.pve.vms[102].config["hostpci0"] == "0000:02:00,pcie=1"
    assert world.pve.mappings == {}
    assert raw_requests(world) == [("PUT", "/nodes/pve/qemu/102/config")]
    starts = [path for _, path, _ in world.pve.log].index("/nodes/pve/qemu/102/status/start")
    assert starts > [path for _, path, _ in world.pve.log].index("/nodes/pve/qemu/102/config")
    assert world.plan().empty


def test_without_a_change_the_password_is_not_read(world: World) -> None:
    assert world.apply().exit_code == 0
    (world.folder / "root").unlink()
    world.pve.has_root = False
    assert world.plan().empty
    world.pve.vms[102].config["cores"] = "1"
    assert world.apply().exit_code == 0, "what the token may change needs no root"


def test_a_token_alone_leaves_a_vm_that_does_not_start(world: World) -> None:
    world.pve.has_root = False
    report = world.apply()
    assert report.exit_code == 1
    codes = {problem.code for step in report.steps for problem in step.diagnostics}
    assert "PVE_AUTH_TOKEN_RAW_PCI" in codes
    assert not world.pve.vms[102].running
    world.pve.has_root = True
    assert world.apply().exit_code == 0
    assert world.pve.vms[102].config["hostpci0"] == "0000:02:00,pcie=1"


def test_from_a_mapping_to_its_address_and_back(world: World) -> None:
    world.write(INVENTORY)
    assert world.apply().exit_code == 0
    assert world.pve.vms[102].config["hostpci0"] == "mapping=provision-site-one,pcie=1"
    world.write(RAW)
    assert world.apply(prune=True).exit_code == 0
    assert world.pve.vms[102].config["hostpci0"] == "0000:02:00,pcie=1"
    assert world.pve.mappings == {}
    world.write(RAW.replace(", raw: true", ""))
    assert world.apply().exit_code == 0
    assert world.pve.vms[102].config["hostpci0"] == "0000:02:00,pcie=1", "it passes just the card: it stays"


def test_functions_are_one_entry_with_their_addresses(world: World) -> None:
    world.write(RAW.replace("raw: true", "raw: true, functions: [1, 0]"))
    assert world.apply().exit_code == 0
    assert world.pve.vms[102].config["hostpci0"] == "0000:02:00.0;0000:02:00.1,pcie=1"
    assert world.plan().empty


def test_a_rebuild_keeps_it(world: World) -> None:
    world.write(RAW.replace("console-loss, delete]", "console-loss, delete, replace]"))
    assert world.apply().exit_code == 0
    site = world.site()
    mark_for_rebuild(site, "vm-gpu", Cancel())
    site.close()
    images = world.pve.vms[102].images
    assert world.apply().exit_code == 0
    assert world.pve.vms[102].images == images + 1, "it was made anew"
    assert world.pve.vms[102].config["hostpci0"] == "0000:02:00,pcie=1"
    assert world.plan().empty


BOTH = RAW.replace(
    "    cards:\n", '    usb: { stick: { id: "10c4:ea60", raw: true } }\n    cards:\n'
).replace("gpus: [one],", "gpus: [one], usb: [stick],")
WRITES = 14
"""More than the requests that change something, from nothing."""


@pytest.mark.parametrize("boundary", range(WRITES))
def test_a_run_that_dies_at_any_write_goes_on_to_the_same_end(tmp_path: Path, boundary: int) -> None:
    worlds = [World(tmp_path / name) for name in ("whole", "cut")]
    for made in worlds:
        made.write(BOTH)
        (made.folder / "root").write_text("root-password\n")
        made.pve.has_root = True
        made.host.usb = "device 1-2 10c4:ea60 00\nend\n"
    whole, cut = worlds
    assert whole.apply().exit_code == 0
    assert sum(method != "GET" for method, _, _ in whole.pve.log) <= WRITES
    dying(cut, boundary)
    assert cut.apply().exit_code == 0
    assert cut.plan().empty
    assert cut.dump() == whole.dump()
    config = cut.pve.vms[102].config
    assert (config["hostpci0"], config["usb0"]) == ("0000:02:00,pcie=1", "host=10c4:ea60")


def test_root_s_password_is_asked_for_by_name(world: World) -> None:
    world.write(INVENTORY.replace("drives_console: true", "drives_console: true, raw: true"))
    with pytest.raises(UsageError, match="root_password"):
        load_inventory(world.folder / "site.yaml")


def test_the_host_s_own_entry_of_root_may_be_changed(world: World) -> None:
    assert world.apply().exit_code == 0
    world.pve.vms[102].config["hostpci0"] = "0000:02:00.0"
    assert world.plan().refusals == ()
    assert world.apply().exit_code == 0
    assert world.pve.vms[102].config["hostpci0"] == "0000:02:00,pcie=1"


@pytest.mark.parametrize(("text", "expected"), [(RAW, True), (INVENTORY, False)])
def test_the_password_is_not_opened_before_a_request_needs_it(
    world: World, text: str, expected: bool
) -> None:
    (world.folder / "root").unlink()
    world.write(text)
    inventory = load_inventory(world.folder / "site.yaml")
    spec = next(spec for spec in systems(inventory) if spec.name == "pve/api")
    endpoint = HttpsEndpoint("https://127.0.0.1:1", "a@pve!b", SecretStr("t"), "AB" * 32)
    opening = Opening(spec, endpoint, inventory, inventory.redactor, SshPool(), "", (), {})
    driver = open_api(opening)
    assert isinstance(driver, ProxmoxDriver)
    assert (driver._root is not None) is expected
    if driver._root is not None:
        with pytest.raises(UsageError, match="root"):
            driver._root.request("PUT", "/nodes/pve/qemu/102/config", {"hostpci0": "x"})
    driver.close()
