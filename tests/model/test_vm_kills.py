from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from provision.api.vm_marker import mark_for_rebuild
from provision.values.cancel import Cancel
from tests.unit.proxmox.roles.world import INVENTORY, World

WRITES = 12
"""The most requests that change something, in a run that makes the site from nothing."""
CYCLE_WRITES = 6
"""The same of a run that changes a VM which must be off for it."""
REBUILD_WRITES = 8
"""The same of a run that makes a VM anew."""


def test_no_write_is_left_out(tmp_path: Path) -> None:
    """What is killed below is killed before each of its writes."""
    made = World(tmp_path)
    assert dying(made, 1000) <= WRITES
    with_more_cores(made, "vm-1")
    assert dying(made, 1000) <= CYCLE_WRITES
    assert dying(to_rebuild(tmp_path / "rebuild"), 1000) <= REBUILD_WRITES


@pytest.mark.parametrize("boundary", range(WRITES))
def test_a_run_that_dies_goes_on_to_the_same_end(tmp_path: Path, boundary: int) -> None:
    whole = World(tmp_path / "whole")
    cut = World(tmp_path / "cut")
    whole.apply()
    dying(cut, boundary)
    report = cut.apply()
    assert report.exit_code == 0, [(str(each.id), each.diagnostics) for each in report.steps]
    assert cut.plan().empty
    assert cut.dump() == whole.dump()
    assert {name: cut.host_key(name) for name in cut.guests}


def with_more_cores(world: World, node: str) -> None:
    world.write(INVENTORY.replace(f"{node}: {{ profile: small,", f"{node}: {{ profile: small, cores: 4,"))


def to_rebuild(folder: Path) -> World:
    """Return a site that is as declared, and whose first VM is to be made anew."""
    world = World(folder)
    world.write(INVENTORY.replace("console-loss, delete]", "console-loss, delete, replace]"))
    world.apply()
    site = world.site()
    mark_for_rebuild(site, "vm-1", Cancel())
    site.close()
    return world


class DeadError(BaseException):
    pass


def ended(thread: threading.Thread) -> None:
    """Wait for the end of a thread, also of one that has not begun yet."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            thread.join(5)
        except RuntimeError:  # it is about to begin
            time.sleep(0.01)
        else:
            return


def dying(world: World, writes: int) -> int:
    """Apply until a number of writes have reached the API, and die before the next; return how many did."""
    request = world.pve.request
    done = [0]

    def counted(method: str, path: str, data: object = None) -> object:
        if method != "GET":
            if done[0] == writes:
                raise DeadError
            done[0] += 1
        return request(method, path, data)  # type: ignore[arg-type]  # the original, whatever it takes

    world.pve.request = counted  # type: ignore[method-assign]  # counted in between
    before = set(threading.enumerate())
    try:
        world.apply()
    except DeadError:
        for thread in set(threading.enumerate()) - before:  # of a dead controller, none writes any more
            ended(thread)
    finally:
        world.pve.request = request  # type: ignore[method-assign]  # as it was
    return done[0]


@pytest.mark.parametrize("node", ["vm-1", "vm-gpu"])
@pytest.mark.parametrize("boundary", range(CYCLE_WRITES))
def test_a_power_cycle_that_dies_leaves_no_vm_off(tmp_path: Path, boundary: int, node: str) -> None:
    world = World(tmp_path)
    world.apply()
    vm = world.pve.vms[101 if node == "vm-1" else 102]
    vm.config["description"] = notes = f"mine\n{vm.config['description']}"
    with_more_cores(world, node)
    dying(world, boundary)
    report = world.apply()
    assert report.exit_code == 0, [(str(each.id), each.diagnostics) for each in report.steps]
    assert (vm.running, vm.config["cores"], vm.config["description"]) == (True, "4", notes)
    assert world.plan().empty
    vm.running = False
    if node == "vm-gpu":
        changed = [step for step in world.plan().steps if step.changes]
        assert changed == [], "off by hand: no start is owed any more"


def test_a_vm_that_owes_a_start_is_made_anew_like_any_other(tmp_path: Path) -> None:
    for running in (True, False):
        world = World(tmp_path / str(running))
        world.write(INVENTORY.replace("console-loss, delete]", "console-loss, delete, replace]"))
        world.apply()
        old = world.pve.vms[102]
        old.running = running
        old.config["description"] += " replace=tok owes=start"
        report = world.apply()
        assert report.exit_code == 0, [(str(each.id), each.diagnostics) for each in report.steps]
        assert (world.pve.vms[102], old.images) == (old, 1)
        assert world.plan().empty


@pytest.mark.parametrize("boundary", range(REBUILD_WRITES))
def test_a_rebuild_that_dies_is_finished_by_the_next_apply(tmp_path: Path, boundary: int) -> None:
    whole, cut = to_rebuild(tmp_path / "whole"), to_rebuild(tmp_path / "cut")
    old = cut.pve.vms[101]
    whole.apply()
    dying(cut, boundary)
    report = cut.apply()
    assert report.exit_code == 0, [(str(each.id), each.diagnostics) for each in report.steps]
    assert cut.pve.vms[101] is old
    assert old.images in (1, 2), "a run that dies right after it does it again"
    assert cut.plan().empty
    assert cut.dump() == whole.dump()
