"""VMs that take any card of a pool of equal ones: one mapping with several entries for one node."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from provision.testing.model_host import hypervisor_state
from provision.testing.model_proxmox import ModelVm
from provision.values.errors import Refused
from tests.model.test_vm_kills import dying
from tests.unit.proxmox.preflight.test_rules import found
from tests.unit.proxmox.roles.world import INVENTORY, World

SLOTS = {"0000:02:00": "10de:2204", "0000:03:00": "10de:2204", "0000:04:00": "10de:2204"}
CARDS = "".join(
    f'      {name}: {{ address: "{slot}", id: "10de:2204" }}\n'
    for name, slot in zip(("one", "two", "three"), SLOTS, strict=True)
)
MAPPING = "provision-site-any"
SECOND = "  vm-3: { profile: small, vmid: 103, address: 10.0.0.13, gpus: [any] }\n"


def pool(*cards: str, nodes: str = SECOND) -> str:
    """Return the site with VM 102, and others, that take one of the named cards."""
    text = INVENTORY.replace(
        '      one: { address: "0000:02:00", id: "10de:2204", drives_console: true }\n',
        f"{CARDS}    card_pools: {{ any: [{', '.join(cards)}] }}\n",
    )
    return text.replace("gpus: [one], power: unmanaged", "gpus: [any]") + nodes


TWO = pool("one", "two")


def site(folder: Path, text: str = TWO) -> World:
    """Return a host with three equal cards."""
    world = World(folder, host=hypervisor_state(cards=SLOTS))
    world.write(text)
    return world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return site(tmp_path)


def paths(world: World) -> list[str]:
    """Return the addresses of the pool's entries."""
    return sorted(entry.split(",")[1] for entry in world.pve.mappings[MAPPING])


def test_two_vms_take_a_card_each_by_one_mapping(world: World) -> None:
    report = world.apply()
    assert report.exit_code == 0, [(str(each.id), each.diagnostics) for each in report.steps]
    assert list(world.pve.mappings) == [MAPPING]
    assert paths(world) == ["path=0000:02:00", "path=0000:03:00"]
    assert all("id=10de:2204" in entry and "node=pve" in entry for entry in world.pve.mappings[MAPPING])
    for number in (102, 103):
        vm = world.pve.vms[number]
        assert (vm.config["hostpci0"], vm.running) == (f"mapping={MAPPING},pcie=1", True)
    assert world.plan().empty


def test_the_order_of_the_entries_is_no_change(world: World) -> None:
    assert world.apply().exit_code == 0
    world.pve.mappings[MAPPING].reverse()
    assert world.plan().empty


@pytest.mark.parametrize("cards", [("one", "two", "three"), ("three", "one"), ("two", "three")])
def test_a_pool_grows_and_changes_its_cards(world: World, cards: tuple[str, ...]) -> None:
    assert world.apply().exit_code == 0
    world.write(pool(*cards))
    changes = [change for step in world.plan().steps for change in step.changes]
    assert [change.key.kind for change in changes] == ["pci-mapping"]
    assert world.apply().exit_code == 0
    addresses = dict(zip(("one", "two", "three"), SLOTS, strict=True))
    assert paths(world) == sorted(f"path={addresses[card]}" for card in cards)
    assert world.pve.vms[102].running
    assert world.plan().empty


def test_a_pool_shrinks_to_one_card_and_a_single_card_becomes_one(world: World) -> None:
    world.write(pool("one", "two", nodes=""))
    assert world.apply().exit_code == 0
    world.write(pool("three", nodes=""))
    assert world.apply().exit_code == 0
    assert paths(world) == ["path=0000:04:00"]
    assert world.plan().empty


def test_entries_of_other_nodes_stay(world: World) -> None:
    theirs = "node=other,path=0000:aa:00,id=10de:2204"
    assert world.apply().exit_code == 0
    world.pve.mappings[MAPPING].insert(0, theirs)
    assert world.plan().empty
    world.write(pool("one", "two", "three"))
    assert world.apply().exit_code == 0
    assert theirs in world.pve.mappings[MAPPING]
    assert len(world.pve.mappings[MAPPING]) == 1 + len(SLOTS)


def test_from_a_card_to_a_pool_and_back_the_entry_keeps_its_place(world: World) -> None:
    by_name = pool("two", "three", nodes="").replace("gpus: [any]", "gpus: [one]")
    world.write(by_name)
    assert world.apply().exit_code == 0
    assert world.pve.vms[102].config["hostpci0"] == "mapping=provision-site-one,pcie=1"
    world.write(pool("one", "two", nodes="").replace("delete]", "delete, power-cycle]"))
    assert world.apply(prune=True).exit_code == 0
    entries = {key: value for key, value in world.pve.vms[102].config.items() if key.startswith("hostpci")}
    assert entries == {"hostpci0": f"mapping={MAPPING},pcie=1"}
    assert list(world.pve.mappings) == [MAPPING]
    world.write(by_name)
    assert world.apply(prune=True).exit_code == 0
    assert world.pve.vms[102].config["hostpci0"] == "mapping=provision-site-one,pcie=1"
    assert list(world.pve.mappings) == ["provision-site-one"]


def test_destroy_leaves_no_mapping(world: World) -> None:
    assert world.apply().exit_code == 0
    assert world.destroy().exit_code == 0
    assert (world.pve.mappings, world.pve.vms) == ({}, {})


WRITES = 16
"""More than the requests that change something, from nothing."""


@pytest.mark.parametrize("boundary", range(0, WRITES, 2))
def test_a_run_that_dies_at_a_write_goes_on_to_the_same_end(tmp_path: Path, boundary: int) -> None:
    whole, cut = site(tmp_path / "whole"), site(tmp_path / "cut")
    assert whole.apply().exit_code == 0
    dying(cut, boundary)
    assert cut.apply().exit_code == 0
    assert cut.plan().empty
    assert cut.dump() == whole.dump()


# ------------------------------------------------------------ too few cards


UNMANAGED = SECOND.replace("gpus: [any]", "gpus: [any], power: unmanaged")


def test_one_vm_more_than_cards_is_refused_before_it_would_be_started(world: World) -> None:
    world.write(pool("one", nodes=UNMANAGED))
    plan = world.plan()
    assert [problem.code for problem in plan.refusals] == ["GPU_POOL_EXHAUSTED"]
    assert "too few free cards: 1 for 2 VMs" in plan.refusals[0].summary
    with pytest.raises(Refused, match="GPU_POOL_EXHAUSTED"):
        world.apply()
    assert world.pve.vms == {}


def test_a_vm_that_is_off_takes_no_card(world: World) -> None:
    world.write(pool("one", nodes=SECOND.replace("gpus: [any]", "gpus: [any], power: stopped")))
    assert world.plan().refusals == ()
    world.apply()
    assert {number: vm.running for number, vm in world.pve.vms.items()} == {101: True, 102: True, 103: False}


def test_a_vm_that_is_there_and_off_counts_only_if_it_shall_run(world: World) -> None:
    both = pool("one", "two", nodes=UNMANAGED).replace("gpus: [any] }", "gpus: [any], power: unmanaged }")
    world.write(both)
    assert world.apply().exit_code == 0
    world.pve.vms[103].running = False
    world.write(both.replace("[one, two]", "[one]"))
    assert world.plan().refusals == ()
    world.write(pool("one", nodes=UNMANAGED).replace("power: unmanaged", "power: stopped"))
    assert world.plan().refusals == ()
    world.pve.vms[103].running = True
    world.write(both.replace("[one, two]", "[one]"))
    assert [problem.code for problem in world.plan().refusals] == ["GPU_POOL_EXHAUSTED"]


def test_a_mapping_that_lost_a_card_is_corrected_before_a_vm_starts(world: World) -> None:
    assert world.apply().exit_code == 0
    world.pve.mappings[MAPPING].pop()
    world.pve.vms[103].running = False
    assert [problem.code for problem in world.plan().refusals] == []
    report = world.apply()
    assert report.exit_code == 0, "the mapping is corrected before the VM starts"
    assert world.pve.vms[103].running


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("0000:03:00,pcie=1", ["GPU_POOL_EXHAUSTED"]),  # raw, a card of the pool
        ("0000:04:00,pcie=1", []),  # another card
    ],
)
def test_a_card_that_somebody_else_s_running_vm_has_is_not_free(
    world: World, entry: str, expected: list[str]
) -> None:
    world.pve.vms[500] = ModelVm(500, {"name": "games", "memory": "512"}, running=True)
    world.vm_files = f"/etc/pve/nodes/pve/qemu-server/500.conf:hostpci0: {entry}\n".encode()
    problems = [finding for finding in found(world, TWO) if finding.code.startswith("GPU_POOL")]
    assert [problem.code for problem in problems] == expected
    if expected:
        assert "card two is in use by VM 500" in problems[0].evidence


def test_cards_of_a_pool_that_share_an_iommu_group_are_refused(world: World) -> None:
    group = next(each.pci.group for each in world.host.functions if each.pci.slot == "0000:02:00")
    world.host.functions = [
        replace(each, pci=replace(each.pci, group=group)) if each.pci.slot == "0000:03:00" else each
        for each in world.host.functions
    ]
    assert "IOMMU_GROUP_SHARED" in [finding.code for finding in found(world, TWO)]
