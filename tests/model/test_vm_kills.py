from __future__ import annotations

from pathlib import Path

import pytest

from provision.api.vm_marker import mark_for_rebuild
from provision.values.cancel import Cancel
from tests.unit.roles_vm.world import INVENTORY, World


@pytest.mark.parametrize("boundary", range(1, 14))
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


class DeadError(BaseException):
    pass


def dying(world: World, writes: int) -> None:
    """Apply until a number of writes have reached the API, and die before the next."""
    request = world.pve.request
    left = [writes]

    def counted(method: str, path: str, data: object = None) -> object:
        if method != "GET":
            left[0] -= 1
            if left[0] < 0:
                raise DeadError
        return request(method, path, data)  # type: ignore[arg-type]  # the original, whatever it takes

    world.pve.request = counted  # type: ignore[method-assign]  # counted in between
    try:
        world.apply()
    except DeadError:
        pass
    finally:
        world.pve.request = request  # type: ignore[method-assign]  # as it was


@pytest.mark.parametrize("node", ["vm-1", "vm-gpu"])
@pytest.mark.parametrize("boundary", range(6))
def test_a_power_cycle_that_dies_leaves_no_vm_off(tmp_path: Path, boundary: int, node: str) -> None:
    world = World(tmp_path)
    world.apply()
    vm = world.pve.vms[101 if node == "vm-1" else 102]
    vm.config["description"] = notes = f"mine\n{vm.config['description']}"
    world.write(INVENTORY.replace(f"{node}: {{ profile: small,", f"{node}: {{ profile: small, cores: 4,"))
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
        assert world.pve.vms[102] is not old
        assert world.plan().empty


@pytest.mark.parametrize("boundary", range(13))
def test_a_rebuild_that_dies_is_finished_by_the_next_apply(tmp_path: Path, boundary: int) -> None:
    whole, cut = World(tmp_path / "whole"), World(tmp_path / "cut")
    for world in (whole, cut):
        world.write(INVENTORY.replace("console-loss, delete]", "console-loss, delete, replace]"))
        world.apply()
        site = world.site()
        mark_for_rebuild(site, "vm-1", Cancel())
        site.close()
    old = cut.pve.vms[101]
    whole.apply()
    dying(cut, boundary)
    report = cut.apply()
    assert report.exit_code == 0, [(str(each.id), each.diagnostics) for each in report.steps]
    assert cut.pve.vms[101] is not old
    assert cut.plan().empty
    assert cut.dump() == whole.dump()
