from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from provision.api import Options
from provision.connections.contracts import ApiError, Endpoint, KeyPair
from provision.contracts.driver import Driver
from provision.contracts.effect import Effect
from provision.contracts.query import Unknown
from provision.contracts.snapshot import Pending
from provision.contracts.system import SystemSpec
from provision.dhcp.dnsmasq_files import DnsmasqFiles
from provision.engine.model import Plan
from provision.hosts import host_effects
from provision.proxmox.resources.guest import vendor_data
from provision.testing.model_host import ModelFile, ModelHost
from provision.testing.model_proxmox import ALL_RIGHTS, ModelVm
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent
from tests.model.model_site import ModelSite
from tests.model.test_engine_sites import lab
from tests.unit.proxmox.roles.world import HOSTS, INVENTORY, World

NOTHING = INVENTORY.split("nodes:\n", maxsplit=1)[0] + "nodes: {}\n"
BOTH = [
    "pve/api:pci-mapping:provision-site-one",
    "pve/api:vm:vm-1",
    "pve/api:vm:vm-gpu",
    "router:dhcp-reservation:vm-1",
    "router:dhcp-reservation:vm-gpu",
]
STEPS = Options(steps=("hypervisor_host",))
COPIES = "/etc/kernel/cmdline.provision-"
"""Of what stood there, for a person: they stay."""
SNIPPET = "/var/lib/vz/snippets/provision-site-vm-1.yaml"


def without(*names: str, text: str = INVENTORY) -> str:
    return "".join(
        line
        for line in text.splitlines(keepends=True)
        if not line.startswith(tuple(f"  {n}:" for n in names))
    )


def changed(plan: Plan) -> list[str]:
    return sorted(str(change.key) for step in plan.steps for change in step.changes)


@pytest.fixture
def world(tmp_path: Path) -> World:
    found = World(tmp_path)
    assert found.apply().exit_code == 0
    return found


class Mute(World):
    """A site with systems that cannot be opened."""

    silent: frozenset[str] = frozenset()

    def _open(self, spec: SystemSpec, endpoint: Endpoint) -> Driver:
        if spec.name in self.silent:
            raise Permanent(Diagnostic("HOST_UNREACHABLE", f"{spec.name} does not answer"))
        return super()._open(spec, endpoint)


# ---------------------------------------------------------------- shown, whoever is declared


def test_without_any_node_all_that_was_made_is_shown(world: World) -> None:
    world.write(NOTHING)
    plan = world.plan()
    assert sorted(plan.orphans) == BOTH
    assert changed(plan) == []


def test_a_node_that_is_not_managed_hides_nothing(world: World) -> None:
    other = "nodes:\n  other: { profile: small, vmid: 300, address: 10.0.0.30, manage: false }\n"
    world.write(without("vm-1").replace("nodes:\n", other))
    assert sorted(world.plan().orphans) == ["pve/api:vm:vm-1", "router:dhcp-reservation:vm-1"]


def test_what_belongs_to_a_node_that_is_not_managed_is_no_orphan(world: World) -> None:
    world.write(INVENTORY.replace("gpus: [one], power: unmanaged", "gpus: [one], manage: false"))
    assert world.plan().orphans == ()


def test_a_vm_that_was_renamed_by_hand_is_found_by_its_marker(world: World) -> None:
    world.pve.vms[101].config["name"] = "kept-for-later"
    world.write(without("vm-1"))
    assert "pve/api:vm:kept-for-later (VM 101)" in world.plan().orphans
    assert world.apply(prune=True).exit_code == 0
    assert sorted(world.pve.vms) == [102]


def test_a_copy_of_a_declared_vm_is_its_owners(world: World) -> None:
    config = {**world.pve.vms[101].config, "name": "Copy-of-VM-vm-1"}
    world.pve.vms[150] = ModelVm(150, config)
    assert world.plan().orphans == ()
    assert world.apply(prune=True).exit_code == 0
    world.destroy()
    assert sorted(world.pve.vms) == [150]


def test_two_vms_with_one_marker_are_told_apart(world: World) -> None:
    world.pve.vms[150] = ModelVm(150, dict(world.pve.vms[101].config))
    world.write(without("vm-1"))
    vms = [each for each in world.plan().orphans if ":vm:" in each]
    assert vms == ["pve/api:vm:vm-1 (VM 101)", "pve/api:vm:vm-1 (VM 150)"]


def test_a_node_with_another_number_leaves_its_old_vm(world: World) -> None:
    world.write(INVENTORY.replace("vmid: 101", "vmid: 111"))
    assert "pve/api:vm:vm-1" in world.plan().orphans


def test_a_mapping_outlives_an_orphan_that_uses_it(world: World) -> None:
    world.write(without("vm-gpu"))
    assert "pve/api:pci-mapping:provision-site-one" in world.plan().orphans
    assert world.apply().exit_code == 0
    assert list(world.pve.mappings) == ["provision-site-one"]
    assert sorted(world.pve.vms) == [101, 102]
    assert world.apply(prune=True).exit_code == 0
    assert (list(world.pve.mappings), sorted(world.pve.vms)) == ([], [101])


def test_a_hypervisors_address_that_is_reserved_no_more_is_shown(world: World) -> None:
    path = f"{HOSTS}provision-site-pve"
    world.router.files[path] = ModelFile(b"bc:24:11:00:00:05,10.0.0.5,pve\n")
    assert world.plan().orphans == ("router:dhcp-reservation:pve",)


# ---------------------------------------------------------------- removed with --prune, by destroy


def test_prune_removes_all_that_was_made_for_nobody(world: World) -> None:
    world.write(NOTHING)
    world.host.files[SNIPPET] = ModelFile(b"left by a run that died\n", "0600")
    assert world.apply().exit_code == 0
    assert sorted(world.pve.vms) == [101, 102]
    assert world.apply(prune=True).exit_code == 0
    assert (world.pve.vms, world.pve.mappings, world.reserved()) == ({}, {}, {})
    assert SNIPPET not in world.host.files
    assert world.plan().orphans == ()


def test_prune_needs_consent_to_delete(world: World) -> None:
    world.write(NOTHING.replace(", delete]", "]"))
    assert world.apply(prune=True).exit_code == 5
    assert sorted(world.pve.vms) == [101, 102]


@pytest.mark.parametrize("text", [NOTHING, without("vm-1"), without("vm-gpu")])
def test_destroy_removes_what_left_the_inventory_and_nothing_foreign(world: World, text: str) -> None:
    theirs = {"tags": "provision", "name": "vm-1", "description": "provision: inventory=site-2 node=vm-1"}
    world.pve.vms[900] = ModelVm(900, theirs)
    world.pve.vms[901] = ModelVm(901, {"name": "by-hand", "tags": "provision"})
    world.pve.mappings["provision-site-2-one"] = ["node=pve,path=0000:03:00,id=8086:1533"]
    world.pve.descriptions["provision-site-2-one"] = "made by provision: inventory=site-2"
    world.router.files[f"{HOSTS}provision-site-2-vm"] = ModelFile(b"52:54:00:00:00:09,10.0.0.99,vm\n")
    world.host.files[SNIPPET] = ModelFile(b"left by a run that died\n", "0600")
    world.write(text)
    assert world.destroy().exit_code == 0
    assert sorted(world.pve.vms) == [900, 901]
    assert list(world.pve.mappings) == ["provision-site-2-one"]
    assert list(world.reserved().values()) == ["10.0.0.99"]
    assert SNIPPET not in world.host.files


def test_a_protected_orphan_fails_and_holds_nothing_else_back(world: World) -> None:
    world.pve.vms[101].config["protection"] = "1"
    world.write(without("vm-1"))
    report = world.destroy()
    assert report.exit_code == 1
    assert [each.code for step in report.steps for each in step.diagnostics] == ["VM_PROTECTED"]
    assert sorted(world.pve.vms) == [101]
    assert (world.pve.mappings, world.reserved()) == ({}, {})


def test_a_removal_that_died_before_its_reload_is_finished_by_the_next(world: World) -> None:
    world.write(NOTHING)
    assert world.destroy().exit_code == 0
    reload = Effect(host_effects.RELOAD, "dnsmasq.service")
    world.router.pending[reload] = Pending(reload, world.router.boot_id, "run-0")
    assert world.destroy().exit_code == 0
    assert world.router.pending == {}


# ---------------------------------------------------------------- what cannot be told, and what it costs


def test_a_destroy_that_cannot_look_does_not_say_done(tmp_path: Path) -> None:
    world = Mute(tmp_path)
    assert world.apply().exit_code == 0
    world.write(NOTHING)
    world.silent = frozenset({"pve/api"})
    report = world.destroy()
    assert report.exit_code == 1
    (unknown,) = [each for each in report.steps if str(each.outcome) != "changed"]
    assert (str(unknown.id), str(unknown.outcome)) == ("pve: orphans_unknown", "unreached")
    assert "pci_mapping and virtual_machine left on pve" in unknown.reason


class Blind(World):
    """A site whose router answers, but cannot list its reservations."""

    blind = False

    def _driver(self, spec: SystemSpec, endpoint: Endpoint) -> Driver:
        driver = super()._driver(spec, endpoint)
        if self.blind and isinstance(driver, ModelHost) and spec.name == "router":
            driver.answers[DnsmasqFiles] = lambda _state, _query: Unknown("awk is missing")
        return driver


def mapping_forbidden(world: Blind) -> None:
    world.pve.faults["GET", "/cluster/mapping/pci"] = ApiError(403, "Permission check failed")


def one_vm_broken(world: Blind) -> None:
    world.pve.faults["GET", "/nodes/pve/qemu/101/pending"] = ApiError(500, "got timeout")


def no_rights_on_vms(world: Blind) -> None:
    world.pve.rights = {"/": {each: 1 for each in ALL_RIGHTS if each != "VM.Audit"}}


def router_blind(world: Blind) -> None:
    world.blind = True


@pytest.mark.parametrize(
    ("spoil", "step", "said"),
    [
        (mapping_forbidden, "pve: orphans_unknown", "cannot list the PCI mappings of pve"),
        (one_vm_broken, "pve: orphans_unknown", "cannot determine the owner of VM 101 on pve"),
        (no_rights_on_vms, "pve: orphans_unknown", "the token lacks VM.Audit on /vms"),
        (router_blind, "router: orphans_unknown", "cannot list the reservations of the router"),
    ],
)
def test_what_a_system_that_answers_does_not_tell_is_not_taken_for_nothing(
    spoil: Callable[[Blind], None], step: str, said: str, tmp_path: Path
) -> None:
    world = Blind(tmp_path)
    assert world.apply().exit_code == 0
    world.write(NOTHING)
    spoil(world)
    (warning,) = world.plan().warnings
    assert warning.code == "UNKNOWN"
    assert said in warning.summary
    spoil(world)
    report = world.destroy()
    assert report.exit_code == 1
    (unknown,) = [each for each in report.steps if str(each.outcome) != "changed"]
    assert (str(unknown.id), str(unknown.outcome)) == (step, "failed")
    assert said in unknown.diagnostics[0].summary
    world.pve.rights, world.blind = {"/": dict.fromkeys(ALL_RIGHTS, 1)}, False
    assert world.destroy().exit_code == 0
    assert (world.pve.vms, world.pve.mappings, world.reserved()) == ({}, {}, {})


def test_who_is_silent_is_named_once(tmp_path: Path) -> None:
    world = Mute(tmp_path)
    world.write(NOTHING)
    world.silent = frozenset({"pve/api", "router"})
    assert [each.code for each in world.plan().warnings] == ["ORPHANS_UNKNOWN", "ORPHANS_UNKNOWN"]


def test_a_router_that_only_may_hold_something_fails_no_plan(tmp_path: Path) -> None:
    world = Mute(tmp_path)
    world.write(NOTHING)
    world.silent = frozenset({"router"})
    plan = world.plan()
    assert [each.code for each in plan.warnings if "router" in each.summary] == ["ORPHANS_UNKNOWN"]
    assert not any(each.unreached for each in plan.steps)


@pytest.mark.parametrize("text", [INVENTORY, NOTHING, without("vm-1")])
def test_an_unchanged_plan_asks_four_things_and_each_vm_once(world: World, text: str) -> None:
    world.write(text)
    world.plan()
    world.drivers.clear()
    world.pve.log.clear()
    world.plan()
    paths = [path for _, path, _ in world.pve.log]
    assert len(paths) == len(set(paths)) <= 4 + len(world.pve.vms)
    hosts = [each for each in world.drivers if each.system in {"pve/ssh", "router"}]
    assert [each.round_trips for each in hosts] == [1] * len(hosts)


# ---------------------------------------------------------------- the hypervisor's own files


@pytest.mark.parametrize("loader", ["grub", "systemd-boot"])
def test_removed_kernel_settings_of_a_hypervisor_are_shown_and_pruned(tmp_path: Path, loader: str) -> None:
    inventory = lab(tmp_path)
    site = ModelSite(inventory, tmp_path / "state")
    state = site.hosts["pve/ssh"].state
    state.loader, state.efi = loader, True
    before = f"{state.boot_line}\n".encode()
    state.files["/etc/kernel/cmdline"] = ModelFile(before)
    assert site.apply(STEPS).exit_code == 0
    pve = inventory.hypervisors["pve"].model_copy(update={"cards": {}, "host_resources": ()})
    site.inventory = inventory.model_copy(update={"hypervisors": {"pve": pve}, "nodes": {}})
    ours = ("pve/ssh:modprobe-blacklist:cards", "pve/ssh:kernel-arguments:cmdline")
    assert site.plan(STEPS).orphans == ours
    assert site.plan(Options(steps=("image",))).orphans == ()
    assert site.apply(replace(STEPS, prune=True)).exit_code == 0
    assert [path for path in state.files if "provision" in path and not path.startswith(COPIES)] == []
    assert state.files["/etc/kernel/cmdline"].content == before
    assert site.plan(STEPS).orphans == ()


@pytest.mark.parametrize("loader", ["grub", "systemd-boot"])
def test_card_settings_are_removed_with_the_host_after_the_card_was_pulled(
    tmp_path: Path, loader: str
) -> None:
    site = ModelSite(lab(tmp_path), tmp_path / "state")
    state = site.hosts["pve/ssh"].state
    state.loader, state.efi = loader, True
    state.files["/etc/kernel/cmdline"] = ModelFile(f"{state.boot_line}\n".encode())
    assert site.apply(STEPS).exit_code == 0
    assert "modprobe.blacklist" in state.boot_line
    state.functions.clear()
    (problem,) = [each.problem for each in site.plan(STEPS).steps if each.problem is not None]
    assert problem.code == "CARD_UNREADABLE"
    assert site.destroy(replace(STEPS, host=True)).exit_code == 0
    assert [path for path in state.files if "provision" in path] == []
    assert "modprobe.blacklist" not in state.boot_line


@pytest.mark.parametrize(
    ("lines", "folder"),
    [
        ("dir: snips\n\tpath /mnt/snips/\n", "/mnt/snips/snippets"),
        ("cifs: nas\n\tpath /mnt/pve/nas\n", "/mnt/pve/nas/snippets"),
        ("dir: a\n\tpath /srv\n\tcontent-dirs iso=/i,snippets=/s/t,import=/x\n", "/srv/s/t"),
    ],
)
def test_left_snippets_are_found_in_every_storage(world: World, lines: str, folder: str) -> None:
    key = KeyPair(SecretStr("private"), "ssh-ed25519 AAAA", "SHA256:x")
    path = f"{folder}/provision-site-gone.yaml"
    world.host.files["/etc/pve/storage.cfg"] = ModelFile(lines.encode())
    world.host.files[path] = ModelFile(vendor_data(key, "site", "gone", 103), "0600")
    assert f"pve/ssh:snippet-gone:{path}" in world.plan().orphans
    world.destroy()
    assert path not in world.host.files


def test_unreadable_storages_leave_open_which_snippets_are_left(world: World) -> None:
    storages = world.host.files.pop("/etc/pve/storage.cfg")
    world.write(NOTHING)
    (warning,) = world.plan().warnings
    assert "cannot list the snippets of pve" in warning.summary
    assert world.destroy().exit_code == 1
    world.host.files["/etc/pve/storage.cfg"] = storages
    assert world.destroy().exit_code == 0
    assert world.pve.vms == {}


def test_a_snippet_without_any_vm_is_found_by_its_mark(world: World) -> None:
    """A create that failed leaves a private key; its node then leaves the inventory."""
    state = world.host
    key = KeyPair(SecretStr("private"), "ssh-ed25519 AAAA", "SHA256:x")
    folder = "/var/lib/vz/snippets"
    left = {
        f"{folder}/provision-site-gone.yaml": vendor_data(key, "site", "gone", 103),
        f"{folder}/provision-site-b-c.yaml": vendor_data(key, "site-b", "c", 103),
        f"{folder}/provision-site-copy.yaml": vendor_data(key, "site", "gone", 103),
        f"{folder}/provision-site-theirs.yaml": b"#cloud-config\n{}\n",
    }
    state.files |= {path: ModelFile(content, "0600") for path, content in left.items()}
    world.destroy()
    assert sorted(path for path in state.files if path.startswith(f"{folder}/")) == sorted(list(left)[1:])
