from __future__ import annotations

from dataclasses import replace

import pytest

from provision.contracts import common_effects
from provision.contracts.change import Op, Settles
from provision.contracts.effect import Effect
from provision.contracts.query import Unknown
from provision.contracts.remedy import ApiCall, Impossible
from provision.contracts.resource import Resource, changes_of, remedy_of
from provision.contracts.snapshot import Snapshot
from provision.proxmox import vm_effects
from provision.proxmox.marker import Marker
from provision.proxmox.pci_entries import PciEntries
from provision.proxmox.queries import Elsewhere, VmConfig, VmState
from provision.proxmox.resources.vm import Vm
from provision.proxmox.resources.vm_lifecycle import VmAbsent, VmMarker, VmPower
from provision.proxmox.resources.vm_parts import CloudInit, Drive, Efi, Nic, Passed

MARK = Marker("lab", "vm-gpu", "SHA256:b")
MAC = "BC:24:11:7E:FC:1C"
PCI = PciEntries("pve", frozenset({"0000:02:00.0", "0000:02:00.1"}))
VM = Vm(
    "pve/api",
    "pve",
    102,
    "vm-gpu",
    MARK,
    settings=(
        ("machine", "q35"),
        ("bios", "ovmf"),
        ("cpu", "cputype=host"),
        ("cores", "8"),
        ("memory", "16384"),
        ("balloon", "0"),
        ("onboot", "0"),
    ),
    nics=(Nic(MAC, "vmbr0"),),
    drives=(Drive("scsi0", "local-zfs", 200 * 1024, "local:import/x.qcow2", (("discard", "on"),)),),
    passed=(Passed("provision-lab-gpu", PCI.path("0000:02:00")),),
    pci=PCI,
    efi=Efi("local-zfs"),
    cloud_init=CloudInit("local-zfs", "ubuntu", "ssh-ed25519 AAAA a b\n", "local:snippets/s.yaml"),
    mapping_prefix="provision-lab-",
)
CONFIG = {
    "name": "vm-gpu",
    "description": f"mine\n{MARK}",
    "tags": "gpu;provision",
    "machine": "pc-q35-10.1",
    "bios": "ovmf",
    "cpu": "host,hidden=0",
    "cores": "8",
    "memory": "current=16384",
    "balloon": "0",
    "net0": f"virtio={MAC.lower()},bridge=vmbr0,firewall=1",
    "scsi0": "local-zfs:vm-102-disk-1,discard=on,size=200G",
    "efidisk0": "local-zfs:vm-102-disk-0,efitype=4m,pre-enrolled-keys=0,size=1M",
    "hostpci0": "mapping=provision-lab-gpu,pcie=1,rombar=1",
}


def vm_snapshot(
    status: str = "running", pending: dict[str, str | None] | None = None, /, **config: str | None
) -> Snapshot:
    merged = {key: value for key, value in {**CONFIG, **config}.items() if value is not None}
    state = VmState(102, "vm-gpu", status, merged, pending or {}, "d1")
    return Snapshot("pve/api", answers={VmConfig(102): state})


def calls(vm: Vm | VmMarker | VmPower | VmAbsent, snapshot: Snapshot) -> ApiCall:
    remedy = vm.fix(snapshot)
    assert isinstance(remedy, ApiCall)
    return remedy


def test_a_vm_that_means_the_same_is_unchanged() -> None:
    assert VM.changes(vm_snapshot()) == ()
    assert VM.changes(vm_snapshot(onboot="0", sockets="1", hostpci0="host=02:00,pcie=1")) == ()
    assert VM.changes(vm_snapshot(net0=f"virtio={MAC},bridge=vmbr0", tags="provision")) == ()


@pytest.mark.parametrize(
    ("config", "path", "old", "new", "sent", "cold"),
    [
        ({"cores": "4"}, "cores", "4", "8", {"cores": "8"}, True),
        ({"memory": "8192"}, "memory", "8192", "16384", {"memory": "16384"}, True),
        ({"machine": None}, "machine", None, "q35", {"machine": "q35"}, True),
        ({"balloon": None}, "balloon", None, "0", {"balloon": "0"}, True),
        (
            {"cpu": "x86-64-v2-AES,flags=+aes"},
            "cpu",
            "x86-64-v2-AES,flags=+aes",
            "cputype=host",
            {"cpu": "cputype=host,flags=+aes"},
            True,
        ),
        ({"onboot": "1"}, "onboot", "1", "0", {"onboot": "0"}, False),
        ({"name": "renamed"}, "name", "renamed", VM.name, {"name": VM.name}, False),
        ({"tags": "gpu"}, "tags", "gpu", "gpu;provision", {"tags": "gpu;provision"}, False),
        (
            {"net0": f"virtio={MAC},bridge=vmbr1,firewall=1"},
            "net0.bridge",
            "vmbr1",
            "vmbr0",
            {"net0": f"virtio={MAC},bridge=vmbr0,firewall=1"},
            False,
        ),
        (
            {"hostpci0": None},
            "hostpci0",
            None,
            "mapping=provision-lab-gpu,pcie=1",
            {"hostpci0": "mapping=provision-lab-gpu,pcie=1"},
            True,
        ),
        (
            {"hostpci0": "mapping=provision-lab-gpu"},
            "hostpci0",
            "mapping=provision-lab-gpu",
            "mapping=provision-lab-gpu,pcie=1",
            {"hostpci0": "mapping=provision-lab-gpu,pcie=1"},
            True,
        ),
        (
            {"efidisk0": None},
            "efidisk0",
            None,
            "local-zfs:1,efitype=4m,pre-enrolled-keys=0",
            {"efidisk0": "local-zfs:1,efitype=4m,pre-enrolled-keys=0"},
            True,
        ),
        (
            {"hostpci1": "mapping=provision-lab-old"},
            "hostpci1",
            "mapping=provision-lab-old",
            None,
            {"delete": "hostpci1"},
            True,
        ),
    ],
)
def test_one_field_that_differs_is_one_change(
    config: dict[str, str | None],
    path: str,
    old: str | None,
    new: str | None,
    sent: dict[str, str],
    cold: bool,
) -> None:
    snapshot = vm_snapshot(**config)
    (change,) = VM.changes(snapshot)
    assert (change.path, change.old, change.new) == (path, old, new)
    assert change.settles is (Settles.AFTER_EFFECT if cold else Settles.NOW)
    call = calls(VM, snapshot)
    assert dict(call.requests[0].data) == {**sent, "digest": "d1"}
    assert call.effects == ((Effect(vm_effects.POWER_CYCLE, "vm-gpu"),) if cold else ())
    assert calls(VM, vm_snapshot("stopped", **config)).effects == ()


def test_changes_of_an_existing_vm_do_not_create_it() -> None:
    assert calls(VM, vm_snapshot(cores=None, net0=None)).creates == ""


def test_a_pending_value_needs_a_power_cycle_and_is_not_sent_again() -> None:
    snapshot = vm_snapshot("running", {"cores": "8"}, cores="4")
    (change,) = VM.changes(snapshot)
    assert (change.old, change.new, change.settles) == ("4", "8", Settles.AFTER_EFFECT)
    call = calls(VM, snapshot)
    assert call.requests == ()
    assert call.effects == (Effect(vm_effects.POWER_CYCLE, "vm-gpu"),)


@pytest.mark.parametrize(
    ("key", "waiting"),
    [
        ("cores", "2"),
        ("memory", "current=1024"),
        ("machine", None),
        ("cpu", "x86-64-v2"),
        ("hostpci0", None),
        ("hostpci0", "mapping=theirs,pcie=1"),
        ("net0", "virtio=02:00:00:00:00:01,bridge=vmbr0"),
        ("efidisk0", None),
    ],
)
def test_a_foreign_pending_value_goes_without_a_power_cycle(key: str, waiting: str | None) -> None:
    snapshot = vm_snapshot("running", {key: waiting})
    (change,) = VM.changes(snapshot)
    assert (change.path, change.new, change.settles) == (key, CONFIG[key], Settles.NOW)
    call = calls(VM, snapshot)
    assert [dict(request.data) for request in call.requests] == [{key: CONFIG[key], "digest": "d1"}]
    assert call.effects == ()


def test_a_foreign_pending_value_over_a_wrong_one_is_replaced() -> None:
    call = calls(VM, vm_snapshot("running", {"cores": "2"}, cores="4"))
    assert call.requests[0].data["cores"] == "8"
    assert call.effects == (Effect(vm_effects.POWER_CYCLE, "vm-gpu"),)


def test_disks_only_grow() -> None:
    small = vm_snapshot(scsi0="local-zfs:vm-102-disk-1,size=3G")
    assert [(change.path, change.old, change.new) for change in VM.changes(small)] == [
        ("scsi0.size", "3GiB", "200GiB")
    ]
    (request,) = calls(VM, small).requests
    assert (request.method, request.path) == ("PUT", "/nodes/pve/qemu/102/resize")
    assert request.data == {"disk": "scsi0", "size": "200G"}
    refused = VM.fix(vm_snapshot(scsi0="local-zfs:vm-102-disk-1,size=300G"))
    assert isinstance(refused, Impossible)
    assert refused.diagnostic.code == "DISK_SHRINK"


def test_secure_boot_keys_cannot_be_changed_in_place() -> None:
    refused = VM.fix(vm_snapshot(efidisk0="local-zfs:vm-102-disk-0,efitype=4m,pre-enrolled-keys=1"))
    assert isinstance(refused, Impossible)
    assert refused.diagnostic.code == "DISK_FIXED"


def test_unset_is_unmanaged() -> None:
    bare = replace(VM, settings=(), nics=(), drives=(), passed=(), efi=None)
    theirs = {"cores": "3", "net0": "e1000=00:00:00:00:00:01,bridge=x", "onboot": "1", "agent": "1"}
    assert bare.changes(vm_snapshot(**theirs, machine=None, hostpci0="0000:03:00")) == ()


def test_creation_sends_everything_in_one_request_and_grows_the_disk() -> None:
    snapshot = Snapshot("pve/api", answers={VmConfig(102): None})
    assert all(change.op is Op.CREATE for change in VM.changes(snapshot))
    assert calls(VM, snapshot).creates == VM.name
    create, grow = calls(VM, snapshot).requests
    assert create.path == "/nodes/pve/qemu"
    assert create.task > 0
    data = create.data
    assert data["scsi0"] == "local-zfs:0,import-from=local:import/x.qcow2,discard=on"
    assert data["efidisk0"] == "local-zfs:1,efitype=4m,pre-enrolled-keys=0"
    assert data["net0"] == f"virtio={MAC},bridge=vmbr0"
    assert data["hostpci0"] == "mapping=provision-lab-gpu,pcie=1"
    assert data["sshkeys"] == "ssh-ed25519%20AAAA%20a%20b"
    assert data["cicustom"] == "vendor=local:snippets/s.yaml"
    assert (data["ciupgrade"], data["ipconfig0"], data["tags"]) == (0, "ip=dhcp", "provision")
    assert data["description"] == str(MARK)
    assert grow.data == {"disk": "scsi0", "size": "200G"}


@pytest.mark.parametrize(
    ("answer", "helps"),
    [
        (VmState(102, "win", "running", {"name": "win"}), ", or take the VM over: `provision import"),
        (
            VmState(102, "other", "stopped", {"description": "provision: inventory=lab node=vm-9"}),
            ", or, if vm-9 is called vm-gpu now, take the VM over: `provision import",
        ),
        (
            VmState(102, "other", "stopped", {"description": "provision: inventory=home node=vm-gpu"}),
            "out of its notes and its tag `provision` off (`qm config 102`), then take the VM over:",
        ),
        (Elsewhere("pve2", "qemu", "x"), "Give vm-gpu another vmid"),
        (Elsewhere("pve", "lxc", "ct"), "Give vm-gpu another vmid"),
    ],
)
def test_a_foreign_vm_is_never_changed(answer: object, helps: str) -> None:
    snapshot = Snapshot("pve/api", answers={VmConfig(102): answer})
    assert [change.op for change in VM.changes(snapshot)] == [Op.ATTENTION]
    refused = VM.fix(snapshot)
    assert isinstance(refused, Impossible)
    assert refused.diagnostic.code == "VMID_TAKEN_FOREIGN"
    assert helps in refused.diagnostic.remedy
    assert ("import" in refused.diagnostic.remedy) is isinstance(answer, VmState)
    gone = VmAbsent("pve/api", "pve", 102, MARK)
    assert gone.changes(snapshot) == ()


def test_what_a_killed_creation_left_is_told_from_a_foreign_vm() -> None:
    left = VmState(102, "VM 102", "stopped", {"lock": "create"})
    refused = VM.fix(Snapshot("pve/api", answers={VmConfig(102): left}))
    assert isinstance(refused, Impossible)
    assert refused.diagnostic.code == "VM_CREATE_INTERRUPTED"
    assert "qm destroy 102" in refused.diagnostic.remedy
    theirs = replace(left, config={"lock": "create", "memory": "512"})
    assert VM.foreign(theirs) is not None
    assert VM.foreign(theirs) != VM.foreign(left)


@pytest.mark.parametrize(
    "resource",
    [
        VM,
        VmPower("pve/api", "pve", 102, "vm-gpu", "running"),
        VmMarker("pve/api", "pve", 102, MARK),
        VmAbsent("pve/api", "pve", 102, MARK),
    ],
    ids=lambda resource: type(resource).__name__,
)
def test_an_unknown_vm_is_not_an_absent_vm(resource: Resource) -> None:
    snapshot = Snapshot("pve/api", answers={VmConfig(102): Unknown("no rights")})
    assert [change.op for change in changes_of(resource, snapshot)] == [Op.ATTENTION]
    assert isinstance(remedy_of(resource, snapshot), Impossible)


def test_the_start_of_the_console_vm_risks_the_console_unless_it_runs() -> None:
    power = VmPower("pve/api", "pve", 102, "vm-gpu", "running", 16384, passthrough=True, console=True)
    assert power.changes(vm_snapshot("running")) == ()
    call = calls(power, vm_snapshot("stopped"))
    assert call.risks == (Effect(vm_effects.CONSOLE_LOSS, "vm-gpu"),)
    assert call.requests[0].path.endswith("/102/status/start")
    assert call.requests[0].task == 30 * 4 + 5 + 60
    assert calls(replace(power, console=False), vm_snapshot("stopped")).risks == ()


def test_the_marker_forgets_the_first_key_and_the_snippet() -> None:
    born = replace(MARK, first_key="SHA256:a", replace="tok")
    snapshot = vm_snapshot(description=f"my notes\n{born}", cicustom="vendor=local:snippets/s.yaml")
    marker = VmMarker("pve/api", "pve", 102, MARK, snippet="local:snippets/s.yaml")
    assert [change.path for change in marker.changes(snapshot)] == ["first-key", "cicustom"]
    (request,) = calls(marker, snapshot).requests
    assert request.data == {
        "description": f"my notes\n{replace(MARK, replace='tok')}",
        "delete": "cicustom",
        "digest": "d1",
    }
    assert marker.changes(vm_snapshot()) == ()
    assert marker.changes(vm_snapshot(cicustom="user=local:snippets/theirs.yaml")) == ()


def test_an_offered_key_stays_offered_after_it_was_settled() -> None:
    offered = VmMarker(
        "pve/api", "pve", 102, replace(MARK, host_key="SHA256:c,SHA256:b", first_key="SHA256:a"), "offered"
    )
    assert offered.changes(vm_snapshot())
    assert offered.changes(vm_snapshot(description=str(replace(MARK, host_key="SHA256:c")))) == ()


def test_removing_a_vm_stops_it_first_and_deletes_its_disks() -> None:
    gone = VmAbsent("pve/api", "pve", 102, MARK)
    call = calls(gone, vm_snapshot())
    assert [(request.method, request.path.rsplit("/", 1)[1]) for request in call.requests] == [
        ("POST", "stop"),
        ("DELETE", "102"),
    ]
    assert call.requests[-1].data == {"purge": 1}
    assert call.risks == (Effect(common_effects.DELETE, "vm-gpu"),)
    assert [request.method for request in calls(gone, vm_snapshot("stopped")).requests] == ["DELETE"]
