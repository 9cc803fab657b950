from __future__ import annotations

from pathlib import Path

import pytest

from provision.api.vms import mark_for_rebuild
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
        return request(method, path, data)  # type: ignore[arg-type]

    world.pve.request = counted  # type: ignore[method-assign]
    try:
        world.apply()
    except DeadError:
        pass
    finally:
        world.pve.request = request  # type: ignore[method-assign]


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
