"""What a creation leaves whose worker was killed on the host: the lock `create`, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import SecretStr

from provision.connections.contracts import KeyPair
from provision.proxmox.resources.guest import vendor_data
from provision.testing.model_host import ModelFile
from provision.testing.model_proxmox import LOGIN, ModelVm
from provision.values.errors import Refused
from tests.unit.proxmox.roles.world import INVENTORY, World

ALLOWED = INVENTORY.replace("console-loss, delete]", "console-loss, delete, replace]")
KEY = KeyPair(SecretStr("private"), "ssh-ed25519 AAAA", "SHA256:x")
SNIPPET = "/var/lib/vz/snippets/provision-site-vm-1.yaml"
DESTROY = "qm destroy 101 --skiplock 1 --purge 1 --destroy-unreferenced-disks 1"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return a site whose host obeys `qm destroy`, and where the creation of vm-1 was cut off."""
    world = World(tmp_path)
    world.write(ALLOWED)
    world.pve.interrupt_creation(101)
    world.host.files[SNIPPET] = ModelFile(b"#cloud-config\n", "0600")
    world.host.files[f"{SNIPPET}.of-somebody"] = ModelFile(b"theirs\n")
    request = world.pve.request

    def of_a_host(method: str, path: str, data: Mapping[str, object] | None = None) -> object:
        removed = [probe for probe, code in world.host.probes.items() if "101.conf" in probe and not code]
        if removed and 101 in world.pve.vms and world.pve.vms[101].config == {"lock": "create"}:
            del world.pve.vms[101]
        return request(method, path, data)

    world.pve.request = of_a_host  # type: ignore[method-assign]  # what its shell removes is gone from its API
    return world


def test_ours_is_removed_and_the_vm_is_created(world: World) -> None:
    report = world.apply()
    assert report.exit_code == 0, [(str(each.id), each.diagnostics) for each in report.steps]
    assert world.pve.vms[101].running
    assert "lock" not in world.pve.vms[101].config
    assert world.plan().empty


def test_the_plan_names_it_and_asks(world: World) -> None:
    world.write(INVENTORY)
    plan = world.plan()
    assert [problem.code for problem in plan.refusals] == []
    changes = [change for step in plan.steps for change in step.changes if change.key.kind == "command"]
    assert [change.key.name for change in changes] == ["remove VM 101, whose creation was interrupted"]
    assert [(str(need.effect), str(need.consent)) for need in plan.risks if need.system == "pve/ssh"] == [
        ("replace vm-1", "ask")
    ]


def test_without_consent_nothing_is_removed_or_created(world: World) -> None:
    world.write(INVENTORY)
    report = world.apply()
    assert report.exit_code == 5
    assert world.pve.vms[101].config == {"lock": "create"}
    assert world.host.probes == {}
    assert world.pve.vms[102].running, "the other VM does not wait"


@pytest.mark.parametrize(
    ("running", "login", "snippet"),
    [
        (True, LOGIN, True),
        (False, "root@pam", True),
        (False, "provision@pve!other", True),
        (False, LOGIN, False),
    ],
    ids=["its task still runs", "a person", "another token", "another inventory with our token"],
)
def test_any_other_one_is_refused_and_stays(tmp_path: Path, running: bool, login: str, snippet: bool) -> None:
    world = World(tmp_path)
    world.write(ALLOWED)
    world.pve.interrupt_creation(101, running=running, login=login)
    if snippet:
        world.host.files[SNIPPET] = ModelFile(b"#cloud-config\n", "0600")
    with pytest.raises(Refused) as refused:
        world.apply()
    assert [problem.code for problem in refused.value.diagnostics] == ["VM_CREATE_INTERRUPTED"]
    assert world.pve.vms[101].config == {"lock": "create"}
    assert world.host.probes == {}


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("qmcreate", "OK"),
        ("qmcreate", "WARNINGS: 1"),
        ("qmrestore", "unexpected status"),
        ("qmdestroy", "OK"),
    ],
)
def test_what_somebody_began_after_our_creation_is_theirs(world: World, kind: str, status: str) -> None:
    world.pve._begin(kind, "101", status)
    (problem,) = world.plan().refusals
    assert problem.code == "VM_CREATE_INTERRUPTED"
    assert world.pve.vms[101].config == {"lock": "create"}


def test_a_removal_that_failed_has_left_our_creation(world: World) -> None:
    world.pve._begin("qmdestroy", "101", "VM is locked (create)")
    assert world.plan().refusals == ()


def test_a_login_that_sees_no_task_is_no_proof(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(ALLOWED)
    world.pve.interrupt_creation(101, login="root@pam")
    world.pve._tasks.clear()
    (problem,) = world.plan().refusals
    assert problem.code == "VM_CREATE_INTERRUPTED"
    assert DESTROY in problem.remedy


def test_destroy_removes_it_too(world: World) -> None:
    report = world.destroy()
    assert report.exit_code == 0, [(str(each.id), each.diagnostics) for each in report.steps]
    world.pve.request("GET", "/access/permissions")
    assert 101 not in world.pve.vms
    assert SNIPPET not in world.host.files
    assert f"{SNIPPET}.of-somebody" in world.host.files


def test_it_is_found_when_its_node_has_left_the_inventory(world: World) -> None:
    world.host.files[SNIPPET] = ModelFile(vendor_data(KEY, "site", "vm-1", 101), "0600")
    world.write(re.sub("  vm-1: .*\n", "", ALLOWED))
    assert set(world.plan().orphans) == {
        "pve/ssh:command:remove VM 101, whose creation was interrupted",
        f"pve/ssh:snippet-gone:{SNIPPET}",
    }
    assert world.apply(prune=True).exit_code == 0
    world.pve.request("GET", "/access/permissions")
    assert 101 not in world.pve.vms
    assert SNIPPET not in world.host.files
    assert world.plan().orphans == ()


@pytest.mark.parametrize("text", [ALLOWED, ALLOWED.split("nodes:\n", maxsplit=1)[0] + "nodes: {}\n"])
def test_destroy_finds_it_without_its_node(world: World, text: str) -> None:
    world.host.files[SNIPPET] = ModelFile(vendor_data(KEY, "site", "vm-1", 101), "0600")
    world.write(re.sub("  vm-1: .*\n", "", text))
    assert world.destroy().exit_code == 0
    world.pve.request("GET", "/access/permissions")
    assert 101 not in world.pve.vms
    assert SNIPPET not in world.host.files


@pytest.mark.parametrize(("running", "login"), [(True, LOGIN), (False, "root@pam")])
def test_without_its_node_any_other_one_stays_and_is_named(tmp_path: Path, running: bool, login: str) -> None:
    world = World(tmp_path)
    world.pve.interrupt_creation(101, running=running, login=login)
    world.host.files[SNIPPET] = ModelFile(vendor_data(KEY, "site", "vm-1", 101), "0600")
    world.write(re.sub("  vm-1: .*\n", "", ALLOWED))
    report = world.destroy()
    assert report.exit_code == 1
    problems = [problem.code for step in report.steps for problem in step.diagnostics]
    assert problems == ["VM_CREATE_INTERRUPTED"]
    assert world.pve.vms[101].config == {"lock": "create"}
    assert SNIPPET in world.host.files


def test_without_its_node_a_whole_vm_with_its_number_stays(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.pve.vms[101] = ModelVm(101, {"name": "theirs", "memory": "512"})
    world.host.files[SNIPPET] = ModelFile(vendor_data(KEY, "site", "vm-1", 101), "0600")
    world.write(re.sub("  vm-1: .*\n", "", ALLOWED))
    assert world.destroy().exit_code == 0
    assert 101 in world.pve.vms
    assert SNIPPET not in world.host.files


def test_only_an_unfinished_vm_costs_a_further_request(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.apply().exit_code == 0
    world.pve.log.clear()
    world.plan()
    assert not [path for _, path, _ in world.pve.log if path.endswith("/tasks")]
