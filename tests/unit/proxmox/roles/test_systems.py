from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.api.domains import load_inventory as load
from provision.api.systems import systems
from provision.connections.contracts import HttpsEndpoint, SshEndpoint
from provision.contracts.driver import Keeper
from provision.contracts.query import Unknown
from provision.contracts.snapshot import Snapshot
from provision.contracts.system import NotThere
from provision.hosts.driver import HostDriver
from provision.inventory import Inventory
from provision.inventory.models.hypervisor import Api
from provision.proxmox import macs
from provision.proxmox.driver import ProxmoxDriver
from provision.proxmox.queries import Elsewhere, VmConfig, VmState
from provision.values.errors import UsageError
from tests.unit.proxmox.roles.world import INVENTORY, World

MARK = "provision: inventory=site node=vm-1 host-key=SHA256:b"


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    World(tmp_path)
    return load(tmp_path / "site.yaml")


def vm(status: str = "running", description: str = MARK) -> VmState:
    return VmState(101, "vm-1", status, {"description": description})


def reach(
    inventory: Inventory, answer: object, vmid: int = 101, node: str = "vm-1"
) -> SshEndpoint | NotThere:
    spec = systems(inventory)[f"{node}/ssh"]
    assert spec.questions == {"pve/api": (VmConfig(vmid),)}
    seen: Mapping[str, Snapshot] = {"pve/api": Snapshot("pve/api", answers={VmConfig(vmid): answer})}
    found = spec.endpoint(seen)
    assert isinstance(found, SshEndpoint | NotThere)
    return found


def test_a_site_has_two_systems_a_hypervisor_a_router_and_its_nodes(inventory: Inventory) -> None:
    found = systems(inventory)
    assert list(found) == ["pve/api", "pve/ssh", "vm-1/ssh", "vm-gpu/ssh", "router"]
    assert [each.kind for each in found.values()] == ["proxmox", "host", "host", "host", "host"]
    endpoint = found["pve/api"].endpoint({})
    assert isinstance(endpoint, HttpsEndpoint)
    assert (endpoint.url, endpoint.token.get_secret_value()) == ("https://10.0.0.5:8006", "secret-token")
    router = found["router"].endpoint({})
    assert isinstance(router, SshEndpoint)
    assert (router.address, router.user) == ("10.0.0.1", "root")


def test_the_lock_of_an_api_is_kept_by_its_hypervisor(inventory: Inventory) -> None:
    assert {each.guard for each in systems(inventory).values() if each.kind == "proxmox"} == {"pve/ssh"}
    assert {each.guard for each in systems(inventory).values() if each.kind == "host"} == {""}
    assert issubclass(HostDriver, Keeper)
    assert not issubclass(ProxmoxDriver, Keeper)


@pytest.mark.parametrize(
    ("login", "guard"),
    [
        ("ssh: { user: reader, sudo: false }", ""),
        ("ssh: { user: reader }", "pve/ssh"),
        ("ssh: { sudo: false }", "pve/ssh"),
        ("ssh: { user: reader, sudo: false }\n    connection: local", "pve/ssh"),
    ],
)
def test_a_login_that_is_not_root_keeps_no_lock(login: str, guard: str, tmp_path: Path) -> None:
    World(tmp_path).write(INVENTORY.replace("address: 10.0.0.5", f"address: 10.0.0.5\n    {login}"))
    assert systems(load(tmp_path / "site.yaml"))["pve/api"].guard == guard


def test_a_router_that_a_person_serves_is_no_system(tmp_path: Path) -> None:
    World(tmp_path).write(INVENTORY.replace("backend: dnsmasq, ssh: { user: root }", "backend: manual"))
    assert "router" not in systems(load(tmp_path / "site.yaml"))


def test_a_guest_is_reached_with_the_keys_of_its_own_marker_and_no_others(inventory: Inventory) -> None:
    found = reach(inventory, vm(description=f"{MARK} first-key=SHA256:a"))
    assert isinstance(found, SshEndpoint)
    assert found.fingerprints == ("SHA256:b", "SHA256:a")
    assert (found.address, found.user, found.wait > 0) == ("10.0.0.11", "debian", True)


def test_a_guest_that_has_long_been_up_is_not_waited_for_as_if_it_booted(inventory: Inventory) -> None:
    fresh, old = reach(inventory, replace(vm(), uptime=5)), reach(inventory, replace(vm(), uptime=86400))
    assert isinstance(fresh, SshEndpoint)
    assert isinstance(old, SshEndpoint)
    assert (fresh.wait, old.wait) == (595.0, 20.0)


@pytest.mark.parametrize(
    ("answer", "late"),
    [
        (None, True),
        (vm("stopped"), True),
        (Unknown("no rights"), False),
        (Elsewhere("pve2", "qemu", "x"), False),
        (vm(description="mine"), False),
        (vm(description="provision: inventory=other node=vm-1"), False),
    ],
)
def test_why_a_guest_is_not_there(inventory: Inventory, answer: object, late: bool) -> None:
    found = reach(inventory, answer)
    assert isinstance(found, NotThere)
    assert (found.late, found.excused) == (late, False)
    assert "vm-1" in found.reason


@pytest.mark.parametrize(
    ("more", "late", "excused"),
    [("", False, True), (" first-key=SHA256:a", True, False), (" owes=start", True, False)],
)
def test_only_a_vm_that_no_run_of_ours_left_off_is_off_by_hand(
    inventory: Inventory, more: str, late: bool, excused: bool
) -> None:
    state = VmState(102, "vm-gpu", "stopped", {"description": MARK.replace("vm-1", "vm-gpu") + more})
    found = reach(inventory, state, 102, "vm-gpu")
    assert isinstance(found, NotThere)
    assert (found.late, found.excused) == (late, excused)


def test_missing_credentials_are_a_fault_of_the_inventory_with_its_remedy(inventory: Inventory) -> None:
    bare = inventory.hypervisors["pve"].model_copy(update={"api": Api()})
    without = inventory.model_copy(update={"hypervisors": {"pve": bare}})
    with pytest.raises(UsageError) as caught:
        systems(without)["pve/api"].endpoint({})
    (problem,) = caught.value.diagnostics
    assert problem.code == "API_CREDENTIALS_MISSING"
    assert "bootstrap" in problem.remedy


NAMES = st.text("abcdefghijklmnop-0123456789", min_size=1, max_size=12)


@given(NAMES, NAMES, st.integers(0, 7))
def test_a_mac_is_made_from_the_names_alone(inventory: str, node: str, nic: int) -> None:
    mac = macs.made(inventory, node, nic)
    assert mac == macs.made(inventory, node, nic)
    assert mac.startswith("BC:24:11:")
    assert len(mac) == 17
    other = macs.made(inventory, node, nic, {mac})
    assert other != mac
    assert other.startswith("BC:24:11:")


def test_macs_of_one_inventory_differ_and_declared_ones_win(tmp_path: Path) -> None:
    taken = macs.made("site", "vm-gpu", 0)
    World(tmp_path).write(
        INVENTORY.replace("vmid: 101,", f"vmid: 101, nics: [{{ mac: '{taken.lower()}' }}, {{}}],")
    )
    inventory = load(tmp_path / "site.yaml")
    found = macs.all_made(inventory)
    assert found["vm-1", 0] == taken
    assert len(set(found.values())) == len(found) == 3


def test_an_existing_vm_s_mac_is_read_back(inventory: Inventory) -> None:
    state = VmState(101, "vm-1", "running", {"net0": "e1000=bc:24:11:aa:bb:cc,bridge=x"})
    assert macs.of_node(inventory, inventory.nodes["vm-1"], 0, state) == "BC:24:11:AA:BB:CC"
    leaving = replace(state, pending={"net0": None})
    assert macs.of_node(inventory, inventory.nodes["vm-1"], 0, leaving) == "BC:24:11:AA:BB:CC"
    assert macs.of_node(inventory, inventory.nodes["vm-1"], 0, None) == macs.made("site", "vm-1", 0)
