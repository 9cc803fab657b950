"""An image that was cut or replaced on its storage after the plan was made: nothing is made from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.api.vm_marker import mark_for_rebuild
from provision.engine.model import RunReport
from provision.values.cancel import Cancel
from tests.unit.proxmox.roles.world import INVENTORY, OPTIONS, World

VOLUME = "local:import/debian-12-abababab.qcow2"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return a site whose image is there already, and where rebuilds are allowed."""
    world = World(tmp_path)
    world.write(INVENTORY.replace("console-loss, delete]", "console-loss, delete, replace]"))
    world.pve.volumes["local"].append(VOLUME)
    return world


def planned_then_swapped(world: World) -> RunReport:
    """Plan, replace the image's content, and apply that plan."""
    site = world.site()
    try:
        plan = site.plan(OPTIONS, lambda _: None, Cancel())
        assert plan.refusals == ()
        world.pve.swapped.add(VOLUME)
        return site.apply(plan, OPTIONS, lambda _: None, Cancel(), lambda _: True)
    finally:
        site.close()


def codes(report: RunReport) -> set[str]:
    return {problem.code for step in report.steps for problem in step.diagnostics}


def test_no_vm_is_created_from_it(world: World) -> None:
    report = planned_then_swapped(world)
    assert report.exit_code == 1
    assert codes(report) == {"IMAGE_CHANGED"}
    assert world.pve.vms == {}
    assert world.pve.volumes == {"local": [VOLUME], "local-zfs": []}


def test_a_rebuild_leaves_the_old_vm_running_with_its_disk(world: World) -> None:
    assert world.apply().exit_code == 0
    site = world.site()
    mark_for_rebuild(site, "vm-1", Cancel())
    site.close()
    before = dict(world.pve.vms[101].config), list(world.pve.volumes["local-zfs"])
    report = planned_then_swapped(world)
    assert codes(report) == {"IMAGE_CHANGED"}
    assert (world.pve.vms[101].config, world.pve.volumes["local-zfs"]) == before
    assert world.pve.vms[101].running


def test_the_right_image_again_is_all_that_is_missing(world: World) -> None:
    planned_then_swapped(world)
    world.pve.swapped.clear()
    assert world.apply().exit_code == 0
    assert world.plan().empty


def test_one_that_was_removed_meanwhile_is_downloaded_again(world: World) -> None:
    site = world.site()
    plan = site.plan(OPTIONS, lambda _: None, Cancel())
    world.pve.volumes["local"].remove(VOLUME)
    report = site.apply(plan, OPTIONS, lambda _: None, Cancel(), lambda _: True)
    site.close()
    assert report.exit_code == 0, codes(report)
    assert VOLUME in world.pve.volumes["local"]


def test_vms_that_are_there_do_not_care(world: World) -> None:
    assert world.apply().exit_code == 0
    world.pve.swapped.add(VOLUME)
    assert world.plan().empty
