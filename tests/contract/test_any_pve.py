"""The life of a VM and a mapping, on the lab's API and on any Proxmox VE that PROVISION_TEST_PVE names.

What the lab's API answers must be what a real one answers. The tests make one VM without an image
(`provision-test-vm`, with a disk of 1 GiB) and one mapping (`provision-test-card`), and remove them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from provision.connections.contracts import ApiConnection
from provision.contracts.driver import Action, Verdict
from provision.contracts.effect import Effect
from provision.contracts.remedy import ApiCall
from provision.contracts.snapshot import Snapshot
from provision.proxmox import driver, vm_effects
from provision.proxmox.marker import read_smbios1
from provision.proxmox.queries import (
    Mappings,
    NodeBridges,
    NodeStorages,
    Permissions,
    Rights,
    StorageEntry,
    VmConfig,
)
from provision.proxmox.resources.mapping import PciMapping
from provision.proxmox.resources.vm import Vm
from provision.proxmox.resources.vm_lifecycle import VmAbsent, VmMarker, VmPower
from provision.proxmox.resources.vm_parts import Drive, Nic
from provision.values.cancel import Cancel
from tests.contract import test_lab_api_proxmoxer
from tests.contract.pve_target import (
    MARK,
    PREFIX,
    VARIABLE,
    Target,
    fingerprint,
    lab_target,
    real_target,
    require_done,
)
from tests.contract.test_lab_api_proxmoxer import Site

site = test_lab_api_proxmoxer.site
pytestmark = pytest.mark.xdist_group("any_pve")


@pytest.fixture(params=["lab", "real"])
def pve(request: pytest.FixtureRequest) -> Iterator[Target]:
    if request.param == "real" and not os.environ.get(VARIABLE):
        pytest.skip(f"{VARIABLE} is not set: no real Proxmox VE")
    target = real_target() if request.param == "real" else lab_target(request.getfixturevalue("site"))
    target.require_free()
    yield target
    target.remove_own()
    target.connection.close()


def small(pve: Target, **settings: str) -> Vm:
    values = {"cores": "1", "memory": "128", "balloon": "0", "onboot": "0", "machine": "q35"} | settings
    return Vm(
        "pve/api",
        pve.node,
        pve.vmid,
        MARK.node,
        MARK,
        settings=tuple(values.items()),
        nics=(Nic("BC:24:11:99:01:00", pve.bridge),),
        drives=(Drive("scsi0", pve.storage, 1024),),
        tags=("own",),
    )


def root_of(pve: Target) -> ApiConnection:
    """Return root@pam, for what our role's privileges do not allow: to lock a VM, to take a snapshot."""
    if pve.root is None:
        pytest.skip(f"{VARIABLE} is an API token: this test needs root@pam")
    return pve.root


def power(pve: Target, status: str) -> VmPower:
    return VmPower("pve/api", pve.node, pve.vmid, MARK.node, status, 128)


def test_version_rights_storages_and_bridges_are_read(pve: Target) -> None:
    version = pve.connection.request("GET", "/version")
    assert isinstance(version, dict)
    assert int(str(version["version"]).partition(".")[0]) >= 8
    queries = frozenset({Permissions(), NodeStorages(), NodeBridges()})
    snapshot = pve.loop.driver.answer(queries, Cancel())
    rights, storages = snapshot[Permissions()], snapshot[NodeStorages()]
    assert isinstance(rights, Rights)
    for path, privilege in (
        (f"/vms/{pve.vmid}", "VM.Allocate"),
        (f"/vms/{pve.vmid}", "VM.Config.Options"),
        (f"/storage/{pve.storage}", "Datastore.AllocateSpace"),
        ("/mapping/pci", "Mapping.Modify"),
    ):
        assert rights.may(path, privilege), (path, privilege)
    disks = next(storage for storage in storages if storage.name == pve.storage)
    assert isinstance(disks, StorageEntry)
    assert (disks.enabled, disks.active, "images" in disks.content) == (True, True, True)
    assert pve.bridge in snapshot[NodeBridges()]


def test_a_vm_is_made_as_declared_read_back_and_removed(pve: Target) -> None:
    vm = small(pve)
    assert pve.loop.see(vm)[VmConfig(pve.vmid)] is None
    pve.loop.settle(vm)
    state = pve.state
    assert (state.name, state.running, state.marker) == (MARK.node, False, MARK.settled())
    assert (state.config["memory"], state.config["cores"], dict(state.pending)) == ("128", "1", {})
    assert "size=1G" in state.config["scsi0"].split(",")
    assert set(state.config["tags"].split(";")) == {"provision", "own"}
    pve.loop.settle(VmAbsent("pve/api", pve.node, pve.vmid, MARK))
    assert pve.loop.see(vm)[VmConfig(pve.vmid)] is None
    content = pve.connection.request("GET", f"/nodes/{pve.node}/storage/{pve.storage}/content")
    assert isinstance(content, list)
    assert [volume for volume in content if f"vm-{pve.vmid}-" in str(volume["volid"])] == []


def test_what_a_person_changed_is_drift_and_is_mended(pve: Target) -> None:
    vm = small(pve)
    pve.loop.settle(vm)
    spoiled = {"name": "renamed", "tags": "theirs;provision", "description": "my notes", "memory": 256}
    require_done(pve.act("PUT", f"{pve.path}/config", spoiled))
    changed = {change.path for change in vm.changes(pve.loop.see(vm))}
    assert changed >= {"name", "description", "memory"}
    assert any(path.startswith("tags") for path in changed), changed
    pve.loop.settle(vm)
    config = pve.state.config
    assert (config["name"], config["memory"]) == (MARK.node, "128")
    assert set(config["tags"].split(";")) == {"provision", "own", "theirs"}, "tags of others stay"
    assert config["description"].strip().startswith("my notes\n"), "what a person wrote stays"


def test_the_marker_survives_notes_that_are_overwritten(pve: Target) -> None:
    pve.loop.settle(small(pve))
    require_done(pve.act("PUT", f"{pve.path}/config", {"description": "nothing of ours"}))
    state = pve.state
    macs = ["BC:24:11:99:01:00"]
    assert state.noted_marker is None
    assert read_smbios1(state.config["smbios1"], pve.vmid, state.name, macs) is not None
    assert state.marker == replace(MARK, tags="")
    pve.loop.settle(VmAbsent("pve/api", pve.node, pve.vmid, replace(MARK, inventory="theirs")))
    pve.loop.settle(VmMarker("pve/api", pve.node, pve.vmid, replace(MARK, host_key=f"SHA256:{'c' * 43}")))
    assert "nothing of ours" in pve.state.config["description"]


def test_a_write_against_an_old_digest_changes_nothing(pve: Target) -> None:
    vm = small(pve)
    pve.loop.settle(vm)
    state = replace(pve.state, digest="0" * 40)
    old = replace(state, config={**state.config, "cores": "9"})
    remedy = vm.fix(Snapshot("pve/api", answers={VmConfig(pve.vmid): old}))
    assert isinstance(remedy, ApiCall)
    action = Action(vm.key, "vm", remedy)
    (result,) = pve.loop.driver.act("run", [action], (), lambda _: None, Cancel())
    assert result.diagnostic is not None
    assert (result.verdict, result.diagnostic.code) == (Verdict.FAILED, "CONFIG_CHANGED_MEANWHILE")
    assert pve.state.config == state.config


def test_a_vm_that_is_locked_is_left_and_said(pve: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    root = root_of(pve)
    monkeypatch.setattr(driver, "LOCK_PATIENCE", 0.0)
    pve.loop.settle(small(pve))
    root.request("PUT", f"{pve.path}/config", {"lock": "backup"})
    try:
        assert pve.state.lock == "backup"
        (result,) = pve.loop.act(power(pve, "running"))
        assert result.diagnostic is not None
        assert (result.verdict, result.diagnostic.code) == (Verdict.FAILED, "VM_LOCKED")
        assert not pve.state.running
    finally:
        root.request("PUT", f"{pve.path}/config", {"delete": "lock", "skiplock": 1})
    pve.loop.settle(power(pve, "running"))


def test_what_needs_a_power_cycle_waits_and_comes_with_it(pve: Target) -> None:
    pve.loop.settle(small(pve), power(pve, "running"))
    more = small(pve, memory="160")
    require_done(pve.act("PUT", f"{pve.path}/config", {"memory": 160}))
    state = pve.state
    assert (state.config["memory"], dict(state.pending)) == ("128", {"memory": "160"})
    cycle = Effect(vm_effects.POWER_CYCLE, MARK.node)
    assert {result.verdict for result in pve.loop.act(more, effects=(cycle,))} == {Verdict.DONE}
    state = pve.state
    assert (state.config["memory"], dict(state.pending), state.running) == ("160", {}, True)
    assert state.marker is not None
    assert state.marker.owes == ""
    pve.loop.settle(power(pve, "stopped"))
    assert not pve.state.running


def test_a_second_vm_of_the_number_is_refused_and_the_first_stays(pve: Target) -> None:
    vm = small(pve)
    pve.loop.settle(vm)
    before = pve.state.config
    remedy = vm.fix(Snapshot("pve/api", answers={VmConfig(pve.vmid): None}))
    assert isinstance(remedy, ApiCall)
    action = Action(vm.key, "vm", remedy)
    (result,) = pve.loop.driver.act("run", [action], (), lambda _: None, Cancel())
    assert result.diagnostic is not None
    assert (result.verdict, result.diagnostic.code) == (Verdict.FAILED, "VMID_TAKEN_FOREIGN")
    assert pve.state.config == before


def test_a_snapshot_of_somebody_is_no_change(pve: Target) -> None:
    vm = small(pve)
    pve.loop.settle(vm)
    taken = pve.act("POST", f"{pve.path}/snapshot", {"snapname": "theirs"}, root_of(pve))
    if taken.diagnostic is not None:  # a storage without snapshots, as the lab's: it is refused as a whole
        assert "snapshot feature is not available" in str(taken.diagnostic)
        assert "parent" not in pve.state.config
    else:
        assert pve.state.config["parent"] == "theirs"
    assert vm.changes(pve.loop.see(vm)) == ()


def test_a_mapping_is_made_changed_and_removed(pve: Target) -> None:
    devices = pve.connection.request("GET", f"/nodes/{pve.node}/hardware/pci", {"pci-class-blacklist": ""})
    assert isinstance(devices, list)
    first, second = (mapping(pve, device) for device in devices[:2])
    pve.loop.settle(first)
    pve.loop.settle(second)
    (own,) = (each for each in pve.loop.see(second)[Mappings()] if each.name == second.name)
    assert len(own.entries) == 1
    assert f"path={dict(second.entries[0])['path']}" in own.entries[0].split(",")
    pool = replace(second, entries=(*first.entries, *second.entries))
    pve.loop.settle(pool)
    (own,) = (each for each in pve.loop.see(pool)[Mappings()] if each.name == pool.name)
    assert len(own.entries) == 2
    gone = replace(second, absent=True)
    pve.loop.settle(gone)
    assert second.name not in {each.name for each in pve.loop.see(gone)[Mappings()]}


def mapping(pve: Target, device: dict[str, object]) -> PciMapping:
    """Return a device of the host under our name: a name alone changes nothing there."""

    def hexadecimal(key: str) -> str:
        return str(device.get(key, "")).removeprefix("0x")

    entry = {"path": str(device["id"]), "id": f"{hexadecimal('vendor')}:{hexadecimal('device')}"}
    if device.get("subsystem_vendor"):
        entry["subsystem-id"] = f"{hexadecimal('subsystem_vendor')}:{hexadecimal('subsystem_device')}"
    if int(str(device.get("iommugroup", -1))) >= 0:
        entry["iommugroup"] = str(device["iommugroup"])
    return PciMapping("pve/api", pve.node, f"{PREFIX}card", (tuple(entry.items()),))


def test_numbers_that_are_taken_stop_the_tests_before_they_touch_anything(site: Site) -> None:
    target = lab_target(site)
    theirs = {"vmid": target.vmid, "name": "theirs"}
    require_done(target.act("POST", "/nodes/pve/qemu", theirs))
    with pytest.raises(pytest.fail.Exception, match="is taken"):
        target.require_free()
    with pytest.raises(pytest.fail.Exception, match="is taken"):
        target.remove_own()
    assert target.state.name == "theirs"


def test_the_variables_name_another_pve(site: Site, tmp_path: Path) -> None:
    token, password = tmp_path / "token", tmp_path / "password"
    token.write_text(f"{site.token}\n")
    password.write_text(f"{site.password}\n")
    variables = {f"{VARIABLE}_CERTIFICATE": str(site.ca), f"{VARIABLE}_VMID": "9902"}
    for login, file in (("provision@pve!lab", token), ("root@pam", password)):
        address = f"https://{login}@127.0.0.1:{site.port}"
        target = real_target({VARIABLE: address, f"{VARIABLE}_SECRET": str(file), **variables})
        assert (target.node, target.storage, target.vmid) == ("pve", "local-lvm", 9902)
        target.require_free()
        target.connection.close()
    assert fingerprint(":".join(["AB"] * 32)) == ":".join(["AB"] * 32)
    with pytest.raises(ValueError, match="API token"):
        real_target({VARIABLE: "https://me@pve@host"})
