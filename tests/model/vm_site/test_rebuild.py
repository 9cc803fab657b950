from __future__ import annotations

from pathlib import Path

import pytest

from provision.api.vm_marker import mark_for_rebuild
from provision.contracts.change import Op
from provision.proxmox import marker
from provision.values.cancel import Cancel
from provision.values.errors import Permanent, Refused, UsageError
from provision.values.outcomes import Outcome
from tests.unit.proxmox.roles.world import INVENTORY, World

ALLOWED = INVENTORY.replace("console-loss, delete]", "console-loss, delete, replace]")


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.apply()
    return world


def mark(world: World, node: str, *, undo: bool = False) -> tuple[str, bool]:
    site = world.site()
    try:
        return mark_for_rebuild(site, node, Cancel(), undo=undo)
    finally:
        site.close()


def token(world: World, vmid: int) -> str:
    found = marker.read(world.pve.vms[vmid].config["description"])
    assert found is not None
    return found.replace


@pytest.mark.parametrize("file", ["debian.qcow2", "d.x-ABABABAB.qcow2"])
def test_a_new_digest_is_another_file_whatever_it_is_called(tmp_path: Path, file: str) -> None:
    named = ALLOWED.replace("debian.img", "1.img").replace('abab" }', f'abab", file: {file} }}')
    world = World(tmp_path)
    world.write(named)
    world.apply()
    (first,) = [each for each in world.pve.volumes["local"] if "import/" in each]
    assert world.plan().empty
    world.write(named.replace("1.img", "2.img").replace("ab" * 32, "cd" * 32))
    assert world.apply().exit_code == 0
    (second,) = [each for each in world.pve.volumes["local"] if "import/" in each and each != first]
    assert second.endswith("-cdcdcdcd.qcow2")
    mark(world, "vm-1")
    world.pve.log.clear()
    assert world.apply().exit_code == 0
    config = ("POST", "/nodes/pve/qemu/101/config")
    (disk,) = [data["scsi0"] for method, path, data in world.pve.log if (method, path) == config]
    assert f"import-from={second}" in str(disk)


def test_a_mark_is_a_token_in_the_notes_and_is_made_once(world: World) -> None:
    world.pve.vms[101].config["description"] += "\nmine"
    made, wrote = mark(world, "vm-1")
    assert wrote
    assert token(world, 101) == made
    assert world.pve.vms[101].config["description"].endswith("\nmine")
    assert mark(world, "vm-1") == (made, False)
    assert mark(world, "vm-1", undo=True) == ("", True)
    assert mark(world, "vm-1", undo=True) == ("", False)
    assert token(world, 101) == ""
    assert world.plan().empty


def test_the_plan_says_what_is_lost_and_waits_for_consent(world: World) -> None:
    mark(world, "vm-1")
    before = world.pve.vms[101]
    plan = world.plan()
    changes = [change for step in plan.steps for change in step.changes]
    (vm,) = [each for each in changes if each.key.kind == "vm"]
    assert [each.op for each in vm.changes] == [Op.REPLACE]
    assert [(str(need.effect), str(need.consent)) for need in plan.risks] == [("replace vm-1", "ask")]
    assert {(s.step.id.subject, s.late) for s in plan.steps if s.late} == {
        ("vm-1", "after vm-1: virtual_machine")
    }
    report = world.apply()
    assert report.exit_code == 5
    assert world.pve.vms[101] is before
    assert before.running


def test_with_consent_it_is_made_anew_with_new_keys_and_the_old_address(world: World) -> None:
    key, mac, disks = world.host_key("vm-1"), world.pve.vms[101].config["net0"], world.pve.dump()["volumes"]
    old = world.pve.vms[101]
    mark(world, "vm-1")
    world.write(ALLOWED)
    report = world.apply()
    assert report.exit_code == 0, [(str(each.id), each.diagnostics) for each in report.steps]
    assert world.pve.vms[101] is old, "the VM stays, and its system disk is another one"
    assert old.images == 1
    assert world.pve.vms[101].running
    assert world.pve.vms[101].config["net0"] == mac
    assert world.pve.dump()["volumes"] == disks
    assert world.host_key("vm-1") != key
    assert world.plan().empty
    assert {each.outcome for each in world.apply().steps} == {Outcome.UNCHANGED}


def test_a_vm_that_is_off_by_hand_is_made_anew_and_started_once(world: World) -> None:
    world.pve.vms[102].running = False
    mark(world, "vm-gpu")
    world.write(ALLOWED)
    assert world.apply().exit_code == 0
    assert world.pve.vms[102].running
    assert world.plan().empty


def test_data_disks_and_what_nobody_declared_stay(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(
        ALLOWED.replace("vm-1: { profile: small,", "vm-1: { profile: small, disks: [{ size: 8GiB }],")
    )
    world.apply()
    vm = world.pve.vms[101]
    vm.config.update(scsi7="local-zfs:vm-101-theirs,size=1G", args="-device foo", boot="order=scsi0;net0")
    before = {key: vm.config[key] for key in ("scsi1", "scsi7", "args", "boot", "net0")}
    mark(world, "vm-1")
    (change,) = [change for step in world.plan().steps for change in step.changes if change.key.kind == "vm"]
    assert "its other disks stay" in str(change.changes[0].new)
    world.pve.log.clear()
    assert world.apply().exit_code == 0
    assert {key: vm.config[key] for key in before} == before
    assert [data["idlist"] for _, path, data in world.pve.log if path.endswith("/unlink")] == ["scsi0"]
    assert not [path for method, path, _ in world.pve.log if method == "DELETE" and "/qemu/" in path]
    assert world.plan().empty


def test_other_changes_come_with_the_new_disk(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(ALLOWED)
    world.apply()
    mark(world, "vm-1")
    world.write(
        ALLOWED.replace(
            "vm-1: { profile: small,", "vm-1: { profile: small, cores: 4, disks: [{ size: 8GiB }],"
        )
    )
    world.pve.log.clear()
    assert world.apply().exit_code == 0
    vm = world.pve.vms[101]
    assert (vm.config["cores"], "size=8G" in vm.config["scsi1"]) == ("4", True)
    assert len([path for _, path, _ in world.pve.log if path.endswith("/status/start")]) == 1
    assert world.plan().empty


def test_a_protected_vm_is_left(world: World) -> None:
    world.pve.vms[101].config["protection"] = "1"
    mark(world, "vm-1")
    world.write(ALLOWED)
    report = world.apply()
    assert report.exit_code == 1
    assert "VM_PROTECTED" in str([each.diagnostics for each in report.steps])
    assert world.pve.vms[101].running


def test_only_our_own_vms_can_be_marked(world: World) -> None:
    with pytest.raises(UsageError, match="NODE_UNKNOWN"):
        mark(world, "vm-9")
    world.pve.vms[101].config.update(description="somebody's", tags="theirs")
    with pytest.raises(Permanent, match="VMID_TAKEN_FOREIGN"):
        mark(world, "vm-1")
    del world.pve.vms[102]
    with pytest.raises(Permanent, match="VM_ABSENT"):
        mark(world, "vm-gpu")


def snapshot_by_somebody(world: World, vmid: int) -> None:
    vm = world.pve.vms[vmid]
    vm.config["parent"] = "before-upgrade"
    vm.snapshots["before-upgrade"] = (vm.config["scsi0"].partition(",")[0],)


def test_a_vm_with_a_snapshot_is_as_declared_and_changes_like_any_other(world: World) -> None:
    snapshot_by_somebody(world, 101)
    assert world.plan().empty
    world.pve.vms[101].config["name"] = "by-hand"
    assert world.apply().exit_code == 0
    assert world.pve.vms[101].config["parent"] == "before-upgrade"
    assert world.plan().empty


def test_a_disk_of_a_snapshot_is_not_replaced_and_the_vm_keeps_running(world: World) -> None:
    world.write(ALLOWED)
    snapshot_by_somebody(world, 101)
    mark(world, "vm-1")
    before = world.pve.dump()
    with pytest.raises(Refused) as refused:
        world.apply()
    (refusal,) = refused.value.diagnostics
    assert (refusal.code, "before-upgrade" in refusal.summary) == ("VM_HAS_SNAPSHOTS", True)
    assert "qm delsnapshot 101 NAME" in refusal.remedy
    assert world.pve.dump() == before
    vm = world.pve.vms[101]
    del vm.config["parent"]
    vm.snapshots.clear()
    assert world.apply().exit_code == 0


def test_destroy_says_that_snapshots_go_with_the_vm(world: World) -> None:
    snapshot_by_somebody(world, 101)
    report = world.destroy()
    assert report.exit_code == 0
    assert world.pve.vms == {}
    gone = [change.old for step in report.steps for done in step.changed for change in done.changes]
    assert "VM 101 with its disks and snapshots (the last one is before-upgrade)" in gone
