from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from provision.connections.contracts import Endpoint
from provision.contracts.driver import Driver
from provision.contracts.system import SystemSpec
from provision.proxmox import marker
from provision.proxmox.resources.guest import KEPT_KEYS
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent
from provision.values.outcomes import Outcome
from tests.unit.proxmox.roles.world import INVENTORY, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_from_nothing_to_two_vms_and_then_nothing_changes(world: World) -> None:
    report = world.apply()
    assert [
        (str(each.id), each.diagnostics)
        for each in report.steps
        if each.outcome is not Outcome.CHANGED and each.id.role != "address"
    ] == []
    assert report.exit_code == 0
    assert {vm.config["name"]: vm.running for vm in world.pve.vms.values()} == {"vm-1": True, "vm-gpu": True}
    plan = world.plan()
    assert plan.empty, [step for step in plan.steps if step.changes or step.problem or step.late]


def test_an_unchanged_site_costs_one_execution_a_host_and_few_requests(world: World) -> None:
    world.apply()
    world.plan()
    world.drivers.clear()
    before = world.pve.requests
    trips = {driver.system: driver.round_trips for driver in world.drivers}
    assert world.plan().empty
    assert world.pve.requests - before <= 4 + len(world.pve.vms)
    for driver in world.drivers:
        if driver.system != "pve/api":
            assert driver.round_trips - trips.get(driver.system, 0) <= 1 or driver.system.startswith("vm-")


@pytest.mark.parametrize("change", ["tag", "reservation"])
def test_a_changed_tag_or_one_new_reservation_makes_no_step_late(world: World, change: str) -> None:
    world.apply()
    if change == "tag":
        world.write(INVENTORY.replace("vmid: 101,", "vmid: 101, tags: [blue],"))
    else:
        del world.router.files[next(path for path in world.router.files if path.endswith("vm-1"))]
    plan = world.plan()
    role = "virtual_machine" if change == "tag" else "dhcp_reservation"
    assert [len(step.changes) for step in plan.steps if step.step.id.role == role] == [1, 0]
    assert [step.step.id for step in plan.steps if step.late] == []


def test_every_host_key_was_known_and_the_first_one_is_dead(world: World) -> None:
    world.apply()
    for vm in world.pve.vms.values():
        found = marker.read(vm.config["description"])
        assert found is not None
        assert found.first_key == ""
        assert found.host_key == world.host_key(vm.config["name"])
        assert "cicustom" not in vm.config
    assert not [path for path in world.host.files if "/snippets/" in path]
    alive = [guest.state.text("/etc/ssh/ssh_host_ed25519_key") for guest in world.guests.values()]
    assert not set(alive) & set(world.keys)


def test_a_guest_keeps_its_host_key_as_another_instance_of_cloud_init(world: World) -> None:
    world.apply()
    for guest in world.guests.values():
        kept = guest.state.files[KEPT_KEYS].content
        assert yaml.safe_load(kept) == {"ssh_deletekeys": False, "ssh_genkeytypes": []}
    assert world.plan().empty


def test_nothing_is_made_on_a_hypervisor_that_does_not_answer_over_ssh(tmp_path: Path) -> None:
    class Silent(World):
        def _open(self, spec: SystemSpec, endpoint: Endpoint) -> Driver:
            if spec.name == "pve/ssh":
                raise Permanent(Diagnostic("HOST_UNREACHABLE", "no answer", spec.name))
            return super()._open(spec, endpoint)

    world = Silent(tmp_path)
    before = world.dump()
    report = world.apply()
    assert report.exit_code == 1
    assert {step.outcome for step in report.steps} <= {Outcome.UNREACHED, Outcome.BLOCKED, Outcome.LATE}
    assert world.dump() == before
