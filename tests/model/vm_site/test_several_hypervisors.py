"""Several hypervisors: nodes of one cluster, or hosts of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.plan_hypervisors import inventory, write
from provision.api.domains import load_inventory as load
from provision.proxmox.marker import Marker
from provision.testing.model_proxmox import ModelVm
from provision.values.errors import Refused
from tests.model.model_site import ModelSite

Make = Callable[..., ModelSite]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make_site(hosts: int, vms: int, *, cards: bool = False, shared: bool = False) -> ModelSite:
        file = write(tmp_path, inventory(hosts, vms, cards=cards))
        models = ModelSite(load(file), tmp_path / "state")
        if shared:  # one cluster: its nodes share the file of the mappings
            first, *others = models.apis.values()
            for api in others:
                api.mappings, api.descriptions = first.mappings, first.descriptions
        return models

    return make_site


def changes(models: ModelSite) -> list[str]:
    plan = models.plan()
    assert plan.refusals == ()
    return [str(change.key) for step in plan.steps for change in step.changes]


def test_an_unchanged_plan_costs_four_requests_a_host_and_one_a_vm(make: Make) -> None:
    models = make(4, 8)
    assert models.apply().exit_code == 0
    assert changes(models) == []
    for api in models.apis.values():
        api.requests = 0
    assert changes(models) == []
    assert [api.requests <= 4 + 2 for api in models.apis.values()] == [True] * 4


def test_nodes_of_a_cluster_write_one_mapping_without_losing_an_entry(make: Make) -> None:
    models = make(3, 3, cards=True, shared=True)
    report = models.apply()
    assert report.exit_code == 0, [(str(step.id), step.diagnostics) for step in report.steps]
    ((name, entries),) = next(iter(models.apis.values())).mappings.items()
    assert name == "provision-many-gpu"
    assert sorted(entry.partition(",path=")[0].rpartition("node=")[2] for entry in entries) == [
        "pve1",
        "pve2",
        "pve3",
    ]
    assert changes(models) == []


def test_nodes_of_a_cluster_have_a_pool_each_by_one_mapping(tmp_path: Path) -> None:
    text = inventory(2, 4).replace(", power: running }", ", power: running, gpus: [any] }")
    for number in (1, 2):
        card = f'      gpu: {{ address: "0000:0{number}:00", id: "10de:2204" }}\n'
        assert card in text
        other = card.replace("gpu:", "other:").replace(f"0{number}:00", f"1{number}:00")
        text = text.replace(card, f"{card}{other}    card_pools: {{ any: [gpu, other] }}\n")
    models = ModelSite(load(write(tmp_path, text)), tmp_path / "state", checks=True)
    first, second = models.apis.values()
    second.mappings, second.descriptions = first.mappings, first.descriptions
    report = models.apply()
    assert [(str(step.id), step.diagnostics) for step in report.steps if step.diagnostics] == []
    ((name, entries),) = first.mappings.items()
    assert name == "provision-many-any"
    assert sorted(tuple(entry.split(",")[:2]) for entry in entries) == [
        ("node=pve1", "path=0000:01:00"),
        ("node=pve1", "path=0000:11:00"),
        ("node=pve2", "path=0000:02:00"),
        ("node=pve2", "path=0000:12:00"),
    ]
    held = {
        f.pci.slot: f.driver for host in ("pve1", "pve2") for f in models.hosts[f"{host}/ssh"].state.functions
    }
    assert {slot for slot, driver in held.items() if driver == "vfio-pci"} == {
        "0000:01:00",
        "0000:11:00",
        "0000:02:00",
        "0000:12:00",
    }
    assert changes(models) == []
    checks = {"test_cards_of_running_vms_are_with_vfio", "test_mappings", "test_card_is_passed_through"}
    outcomes = [
        (check.check, str(check.outcome)) for check in models.verify().checks if check.check in checks
    ]
    assert sorted(outcomes) == sorted(
        [
            (check, "proven")
            for check in checks
            for _ in range(4 if check == "test_card_is_passed_through" else 2)
        ]
    )


def test_a_vm_that_was_migrated_is_told_from_a_foreign_one(make: Make) -> None:
    models = make(2, 2)
    assert models.apply().exit_code == 0
    first, second = models.apis["pve1/api"], models.apis["pve2/api"]
    moved = first.vms.pop(200)
    second.vms[200] = moved
    row = {"vmid": 200, "node": "pve2", "type": "qemu", "name": "vm-0", "status": "running"}
    first.others = [{**row, "tags": "provision"}]
    first.vms_elsewhere = {200: moved}
    (problem,) = models.plan().refusals
    assert problem.code == "VM_ON_OTHER_NODE"
    assert "vm-0 is on node pve2" in problem.summary
    assert "node: pve2" in problem.remedy
    text = Path(models.inventory.file or "").read_text()
    moved.config["description"] = str(Marker("other", "vm-0"))
    assert [problem.code for problem in models.plan().refusals] == ["VMID_TAKEN_FOREIGN"]
    moved.config["description"] = str(Marker("many", "vm-0", "SHA256:" + "k" * 43))
    Path(models.inventory.file or "").write_text(
        text.replace("vm-0: { hypervisor: pve1", "vm-0: { hypervisor: pve2")
    )
    models.inventory = load(Path(models.inventory.file or ""))
    assert not [change for change in changes(models) if ":vm:" in change]


def move(models: ModelSite, config: dict[str, str]) -> None:
    """Move VM 200 from pve1 to pve2, which knows it from then on."""
    first, second = models.apis["pve1/api"], models.apis["pve2/api"]
    moved = first.vms.pop(200)
    moved.config |= config
    second.vms[200] = moved


def declare(models: ModelSite, old: str, new: str) -> None:
    file = Path(models.inventory.file or "")
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    models.inventory = load(file)


def test_devices_of_a_node_are_named_before_a_vm_is_migrated(make: Make) -> None:
    models = make(2, 2)
    assert models.apply().exit_code == 0
    move(models, {"hostpci0": "mapping=gpu,pcie=1", "usb0": "spice", "usb1": "host=1-2"})
    first, second = models.apis["pve1/api"], models.apis["pve2/api"]
    row = {"vmid": 200, "node": "pve2", "type": "qemu", "name": "vm-0", "status": "running"}
    first.others, first.vms_elsewhere = [{**row, "tags": "provision"}], {200: second.vms[200]}
    (problem,) = models.plan().refusals
    assert problem.code == "VM_ON_OTHER_NODE"
    assert "`qm set 200 --delete hostpci0,usb1`, then `qm migrate 200 pve1`" in problem.remedy


def test_a_card_of_the_old_node_goes_once_the_new_one_is_declared(make: Make) -> None:
    models = make(2, 2)
    assert models.apply().exit_code == 0
    move(models, {"hostpci0": "mapping=provision-many-gpu,pcie=1"})
    declare(models, "vm-0: { hypervisor: pve1", "vm-0: { hypervisor: pve2")
    assert [change for change in changes(models) if ":vm:" in change] == ["pve2/api:vm:vm-0"]
    assert models.apply().exit_code == 0
    assert "hostpci0" not in models.apis["pve2/api"].vms[200].config
    assert changes(models) == []


def test_a_vm_that_is_declared_elsewhere_is_not_made_a_second_time(make: Make) -> None:
    models = make(2, 2)
    assert models.apply().exit_code == 0
    models.apis["pve1/api"].vms[200].config["hostpci0"] = "0000:02:00"
    declare(models, "vm-0: { hypervisor: pve1", "vm-0: { hypervisor: pve2")
    (problem,) = models.plan().refusals
    assert (problem.code, problem.subject) == ("VM_ON_OTHER_HYPERVISOR", "vm-0")
    assert "`hypervisor: pve1`" in problem.remedy
    assert "`qm set 200 --delete hostpci0`" in problem.remedy
    with pytest.raises(Refused, match="VM_ON_OTHER_HYPERVISOR"):
        models.apply()
    assert 200 not in models.apis["pve2/api"].vms


def test_the_old_one_of_a_restored_vm_is_a_warning_until_it_runs(make: Make) -> None:
    models = make(2, 2)
    assert models.apply().exit_code == 0
    old = models.apis["pve1/api"].vms[200]
    old.running = False
    models.apis["pve2/api"].vms[200] = replace(old, config=dict(old.config), running=True)
    declare(models, "vm-0: { hypervisor: pve1", "vm-0: { hypervisor: pve2")
    plan = models.plan()
    assert plan.refusals == ()
    (warning,) = [problem for problem in plan.warnings if problem.code == "VM_ON_OTHER_HYPERVISOR"]
    assert "qm destroy 200" in warning.remedy
    old.running = True
    assert [problem.code for problem in models.plan().refusals] == ["VM_ON_OTHER_HYPERVISOR"]


def test_a_vm_of_another_inventory_with_the_same_number_is_no_vm_of_ours(make: Make) -> None:
    models = make(2, 2)
    assert models.apply().exit_code == 0
    stranger = models.apis["pve1/api"].vms[200].config | {"description": str(Marker("other", "vm-0"))}
    models.apis["pve2/api"].vms[200] = ModelVm(200, stranger)
    assert changes(models) == []


def test_a_vm_of_somebody_else_elsewhere_costs_no_more(make: Make) -> None:
    models = make(2, 2)
    api = models.apis["pve1/api"]
    row = {"vmid": 200, "node": "pve2", "type": "qemu", "name": "x", "status": "running"}
    api.others = [row]
    assert [problem.code for problem in models.plan().refusals] == ["VMID_TAKEN_FOREIGN"]
    assert not [path for _, path, _ in api.log if path.startswith("/nodes/pve2/")]


def test_a_host_that_is_silent_holds_up_its_own_vms_only(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    models = make(2, 2)
    opened = models.open

    def open_system(spec: object, endpoint: object) -> object:
        from provision.values.diagnostics import Diagnostic  # noqa: PLC0415 - for this test alone
        from provision.values.errors import Transient  # noqa: PLC0415 - for this test alone

        if getattr(spec, "name", "").startswith("pve1/"):
            raise Transient(Diagnostic("SYSTEM_UNREACHED", "pve1 does not answer"))
        return opened(spec, endpoint)  # type: ignore[arg-type] # as it came

    monkeypatch.setattr(models, "open", open_system)
    models.apply()
    assert list(models.apis["pve2/api"].vms) == [201]
    assert models.apis["pve1/api"].vms == {}
    declare(models, "vm-0: { hypervisor: pve1", "vm-0: { hypervisor: pve2")
    models.apply()
    assert sorted(models.apis["pve2/api"].vms) == [200, 201]  # without VMs, it holds up nobody
