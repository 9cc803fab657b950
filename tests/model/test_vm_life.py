from __future__ import annotations

from pathlib import Path

import pytest

from provision.connections.contracts import Endpoint
from provision.contracts.driver import Driver
from provision.contracts.system import SystemSpec
from provision.proxmox import vm_effects
from provision.testing.model_host import ModelFile
from provision.testing.model_proxmox import ModelVm
from provision.values.consent import Consent
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, Refused
from tests.unit.proxmox.roles.world import HOSTS, INVENTORY, LEASES, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_card_is_passed_by_a_mapping_with_all_that_pve_compares(world: World) -> None:
    world.apply()
    (entry,) = world.pve.mappings["provision-site-one"]
    assert entry.startswith("node=pve,path=0000:02:00,id=10de:2204,subsystem-id=1458:4043")
    vm = world.pve.vms[102]
    assert vm.config["hostpci0"] == "mapping=provision-site-one,pcie=1"
    assert (vm.config["onboot"], vm.config["balloon"], vm.config["machine"]) == ("0", "0", "q35")


def test_the_address_is_reserved_before_the_first_boot(world: World) -> None:
    world.apply()
    assert sorted(world.reserved().values()) == ["10.0.0.11", "10.0.0.12"]
    assert sorted(path for path in world.router.files if path.startswith(HOSTS)) == [
        f"{HOSTS}provision-site-vm-1",
        f"{HOSTS}provision-site-vm-gpu",
    ]


def test_a_vm_that_is_off_by_hand_is_no_drift(world: World) -> None:
    world.apply()
    world.pve.vms[102].running = False
    plan = world.plan()
    assert not [step for step in plan.steps if step.changes]
    away = [step for step in plan.steps if step.unreached]
    assert away
    assert all(step.excused for step in away)
    assert world.apply().exit_code == 0
    assert not world.pve.vms[102].running


def test_a_vm_that_shall_run_is_started_again(world: World) -> None:
    world.apply()
    world.pve.vms[101].running = False
    assert world.apply().exit_code == 0
    assert world.pve.vms[101].running


def test_drift_is_shown_by_name_and_mended(world: World) -> None:
    world.apply()
    world.pve.vms[101].config["cores"] = "1"
    world.pve.vms[101].config["net0"] += ",bridge=vmbr9"
    plan = world.plan()
    changes = [
        (change.key.name, each.path)
        for step in plan.steps
        for change in step.changes
        for each in change.changes
    ]
    assert changes == [("vm-1", "cores"), ("vm-1", "net0.bridge")]
    assert world.apply().exit_code == 0
    vm = world.pve.vms[101]
    assert (vm.config["cores"], vm.pending, vm.running) == ("2", {}, True)
    assert world.plan().empty


def test_a_lost_reservation_of_a_silent_vm_lifts_no_never(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.apply()
    del world.router.files[f"{HOSTS}provision-site-vm-1"]
    world.write(
        INVENTORY.replace("allow: [power-cycle, console-loss", "never: [power-cycle], allow: [console-loss")
        .replace("vm-1: { profile: small,", "vm-1: { profile: small, cores: 4,")
    )  # fmt: skip
    reached = world._open

    def silent(spec: SystemSpec, endpoint: Endpoint) -> Driver:
        if spec.name == "vm-1/ssh":
            raise Permanent(Diagnostic("HOST_UNREACHABLE", "no answer", spec.name))
        return reached(spec, endpoint)

    monkeypatch.setattr(world, "_open", silent)
    risks = {str(each.effect): each.consent for each in world.plan().risks}
    assert risks[f"{vm_effects.POWER_CYCLE} vm-1"] is Consent.NEVER
    world.pve.log.clear()
    world.apply()
    assert not [path for method, path, _ in world.pve.log if method == "POST" and "/101/" in path]


def test_the_mac_of_an_existing_vm_wins(world: World) -> None:
    world.apply()
    mac = "virtio=BC:24:11:AA:BB:CC,bridge=vmbr0"
    world.pve.vms[101].config["net0"] = mac
    del world.router.files[LEASES]
    plan = world.plan()
    assert plan.refusals == ()
    keys = [change.key.kind for step in plan.steps for change in step.changes]
    assert keys[0] == "dhcp-reservation"
    assert "vm" not in keys


def test_an_address_that_is_leased_to_another_refuses_the_run(world: World) -> None:
    world.router.files[LEASES] = ModelFile(b"1795960000 52:54:00:00:00:01 10.0.0.11 printer *\n")
    with pytest.raises(Refused) as caught:
        world.apply()
    assert [each.code for each in caught.value.diagnostics] == ["IP_LEASED_TO_OTHER"]
    assert "printer" in caught.value.diagnostics[0].summary
    assert world.pve.vms == {}


def test_destroy_leaves_nothing_of_ours_and_everything_else(world: World) -> None:
    world.pve.mappings["theirs"] = ["node=pve,path=0000:03:00,id=8086:1533"]
    world.pve.volumes["local"].append("local:import/theirs.qcow2")
    world.router.files[f"{HOSTS}printer"] = ModelFile(b"52:54:00:00:00:09,10.0.0.99,printer\n")
    before = world.dump()
    world.apply()
    report = world.destroy()
    assert report.exit_code == 0
    assert world.dump() == before


def test_a_foreign_vm_is_left_alone_by_apply_and_destroy(world: World) -> None:
    world.apply()
    vm = world.pve.vms[101]
    vm.config.update(description="somebody else's", tags="web")
    config = dict(vm.config)
    with pytest.raises(Refused) as caught:
        world.apply()
    assert [each.code for each in caught.value.diagnostics] == ["VMID_TAKEN_FOREIGN"]
    world.destroy()
    assert world.pve.vms[101].config == config


def test_overwritten_notes_are_given_their_marker_again(world: World) -> None:
    world.apply()
    vm = world.pve.vms[101]
    before = vm.config["description"]
    vm.config["description"] = "my own notes\n- a list"
    assert [
        change.path for step in world.plan().steps for item in step.changes for change in item.changes
    ] == ["description"]
    report = world.apply()
    assert report.exit_code == 0
    assert vm.config["description"] == f"my own notes\n- a list\n{before}"
    assert world.plan().empty


def test_a_copy_with_empty_notes_is_nobodys(world: World) -> None:
    world.apply()
    vm = world.pve.vms[101]
    copy = ModelVm(900, {**vm.config, "name": "Copy-of-VM-vm-1", "description": ""})
    copy.config["net0"] = "virtio=BC:24:11:99:99:99,bridge=vmbr0"
    world.pve.vms[900] = copy
    config = dict(copy.config)
    assert world.apply(prune=True).exit_code == 0
    assert copy.config == config


def test_the_console_start_waits_for_consent(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(INVENTORY.replace("console-loss, ", ""))
    report = world.apply()
    assert report.exit_code == 5
    assert world.pve.vms[101].running
    assert not world.pve.vms[102].running


def test_what_left_the_inventory_is_shown_and_pruned_on_demand(world: World) -> None:
    world.apply()
    lines = [line for line in INVENTORY.splitlines(keepends=True) if "vm-1:" not in line]
    world.write("".join(lines).replace("cards:\n      one:", "cards:\n      two:").replace("[one]", "[two]"))
    plan = world.plan()
    assert sorted(plan.orphans) == [
        "pve/api:pci-mapping:provision-site-one",
        "pve/api:vm:vm-1",
        "router:dhcp-reservation:vm-1",
    ]
    assert not [change for step in plan.steps for change in step.changes if "vm-1" in str(change.key)]
    world.pve.vms[900] = ModelVm(
        900, {"name": "other", "tags": "provision", "description": "provision: inventory=b node=other"}
    )
    assert world.apply(prune=True).exit_code == 0
    assert sorted(world.pve.vms) == [102, 900]
    assert sorted(world.reserved().values()) == ["10.0.0.12"]
    assert list(world.pve.mappings) == ["provision-site-two"]
