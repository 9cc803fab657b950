from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from urllib.parse import quote

import pytest

from provision.lab.contracts import Nic
from tests.model.lab_api.conftest import Site
from tests.model.lab_api.test_vms import KEY, QEMU, config, create, put

MakeVm = Callable[..., int]


def start(site: Site, vmid: int = 100) -> str:
    return site.token.task("POST", f"{QEMU}/{vmid}/status/start")


def test_the_guest_gets_what_the_configuration_says(site: Site) -> None:
    create(
        site,
        name="gpu",
        machine="q35",
        bios="ovmf",
        cores="2",
        memory="1024",
        balloon="0",
        efidisk0="local-disks:1,efitype=4m,pre-enrolled-keys=0",
        scsi0="local-disks:1",
        scsi1="local-disks:1",
        boot="order=scsi1",
        net0="virtio=BC:24:11:00:00:01,bridge=vmbr0",
    )
    assert start(site) == "OK"
    spec = site.guests.started[0]
    disks = site.folder / "storage" / "local-disks"
    assert (spec.vmid, spec.name, spec.cores, spec.memory) == (100, "gpu", 2, 1024)
    assert (spec.machine, spec.firmware, spec.balloon, spec.cards) == ("q35", "ovmf", False, 0)
    assert spec.efivars == disks / "vm-100-disk-0.raw"
    assert spec.disks == (disks / "vm-100-disk-2.qcow2", disks / "vm-100-disk-1.qcow2")
    assert spec.nics == (Nic("bc:24:11:00:00:01", "vmbr0"),)
    assert spec.cloud_init is None


def test_ovmf_without_its_disk_starts_with_a_warning(site: Site) -> None:
    create(site, bios="ovmf")
    assert start(site) == "WARNINGS: 1"
    assert site.guests.started[0].efivars is not None


def test_start_binds_the_iommu_group_without_bridges_then_starts_the_guest(site: Site) -> None:
    text = "node=pve,path=0000:02:00.0,id=1234:1111,iommugroup=8,subsystem-id=1af4:1100"
    site.token("POST", "/cluster/mapping/pci", id="gpu1", map=text)
    create(site, machine="q35", hostpci0="mapping=gpu1,pcie=1")
    assert start(site) == "OK"
    assert site.hypervisor.bound == [("0000:02:00.0", "0000:02:00.1")]
    assert site.hypervisor.devices["0000:02:00.1"].driver == "vfio-pci"
    assert site.hypervisor.devices["0000:00:1c.0"].driver == "pcieport"
    assert site.hypervisor.devices["0000:01:00.0"].driver == "bochs-drm"
    assert site.guests.started[0].cards == 1


def test_nothing_is_bound_before_the_start(site: Site, with_card: MakeVm) -> None:
    with_card(100)
    assert site.hypervisor.bound == []


def test_a_card_serves_one_running_vm_and_the_next_when_that_is_off(site: Site, with_card: MakeVm) -> None:
    with_card(100)
    with_card(101)
    assert start(site, 100) == "OK"
    assert start(site, 101) == "PCI device '0000:01:00.0' already in use by VMID '100'"
    assert 101 not in site.guests.running
    site.guests.running.pop(100)  # powered off from inside
    assert start(site, 101) == "OK"


def test_a_failed_start_does_not_keep_the_card(site: Site, with_card: MakeVm) -> None:
    with_card(100)
    with_card(101)
    site.guests.start_error = "QEMU exited"
    assert start(site, 100) == "QEMU exited"
    site.guests.start_error = None
    assert start(site, 101) == "OK"


def test_several_entries_of_a_mapping_are_a_pool(site: Site) -> None:
    maps = [
        f"node=pve,path={path},id=1234:1111,iommugroup={group},subsystem-id=1af4:1100"
        for path, group in (("0000:01:00", 7), ("0000:02:00", 8))
    ]
    site.token("POST", "/cluster/mapping/pci", id="gpus", map=maps)
    for vmid in (100, 101, 102):
        create(site, vmid, machine="q35", hostpci0="mapping=gpus,pcie=1")
    assert [start(site, vmid) for vmid in (100, 101)] == ["OK", "OK"]
    assert start(site, 102) == "could not find a free device for 'hostpci0'"


@pytest.mark.parametrize(
    "change",
    [{"device": "2222"}, {"iommu_group": 9}, {"subsystem_device": "ffff"}],
)
def test_changed_hardware_fails_the_start_and_shows_in_the_checks(
    site: Site, with_card: MakeVm, change: dict[str, str]
) -> None:
    with_card(100)
    old = site.hypervisor.devices["0000:01:00.0"]
    site.hypervisor.devices["0000:01:00.0"] = replace(old, **change)  # type: ignore[arg-type]  # a table of fields
    assert start(site).startswith("PCI device mapping invalid (hardware probably changed): ")
    listed = site.token("GET", "/cluster/mapping/pci", {"check-node": "pve"}).data[0]
    assert [each["severity"] for each in listed["checks"]] == ["error"]
    assert site.guests.started == []
    assert site.hypervisor.bound == []


def test_a_mapping_must_name_every_property_that_the_hardware_has(site: Site) -> None:
    site.token(
        "POST", "/cluster/mapping/pci", id="gpu0", map="node=pve,path=0000:01:00,id=1234:1111,iommugroup=7"
    )
    create(site, machine="q35", hostpci0="mapping=gpu0,pcie=1")
    assert start(site).endswith("missing expected property 'subsystem-id' for device '0000:01:00'")


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"cores": "5"}, "MAX 4 vcpus allowed per VM on this node"),
        ({"cores": "2", "sockets": "3"}, "MAX 4 vcpus allowed per VM on this node"),
        ({"net0": "virtio,bridge=vmbr9"}, "bridge 'vmbr9' does not exist"),
        ({"machine": "q35", "hostpci0": "mapping=none,pcie=1"}, "PCI device mapping not found for 'none'"),
        (
            {"hostpci0": "mapping=none,pcie=1"},
            "q35 machine model is not enabled at /usr/share/perl5/PVE/QemuServer/PCI.pm line 510.",
        ),
        (
            {"ide2": "local-disks:cloudinit", "cicustom": "vendor=local:snippets/none.yaml"},
            "unable to open file '/var/lib/vz/snippets/none.yaml' - No such file or directory",
        ),
    ],
)
def test_a_start_that_cannot_work_fails_as_a_task(site: Site, form: dict[str, str], status: str) -> None:
    assert create(site, **form) == "OK"
    upid = site.token("POST", f"{QEMU}/100/status/start").data
    site.lab.tasks.wait(upid, 10)
    assert site.token.log(upid)[-1] == f"TASK ERROR: {status}"
    assert site.guests.started == []


def test_a_card_without_an_iommu_group_fails_the_start(site: Site) -> None:
    old = site.hypervisor.devices["0000:01:00.0"]
    site.hypervisor.devices["0000:01:00.0"] = replace(old, iommu_group=-1)
    site.root.task("POST", QEMU, vmid="100", machine="q35", hostpci0="0000:01:00,pcie=1")
    assert start(site) == "cannot prepare PCI pass-through, IOMMU not present"


def test_the_seed_has_the_vendor_snippet_but_its_identity_does_not(site: Site) -> None:
    site.hypervisor.snippets["a.yaml"] = "#cloud-config\nssh_keys: {}\n"
    create(
        site,
        name="one",
        ide2="local-disks:cloudinit",
        net0="virtio=BC:24:11:00:00:01,bridge=vmbr0",
        ciuser="admin",
        sshkeys=quote(KEY, safe=""),
        ipconfig0="ip=dhcp",
        cicustom="vendor=local:snippets/a.yaml",
    )
    start(site)
    first = site.guests.started[0].cloud_init
    assert first is not None
    assert (first.hostname, first.user, first.ssh_keys, first.vendor) == (
        "one",
        "admin",
        KEY,
        "#cloud-config\nssh_keys: {}\n",
    )
    assert first.ipconfig == ("ip=dhcp",)
    put(site, delete="cicustom")
    site.token.task("POST", f"{QEMU}/100/status/reboot")
    second = site.guests.started[1].cloud_init
    assert second is not None
    assert (second.vendor, second.instance_id) == (None, first.instance_id)
    put(site, name="two")
    site.token.task("POST", f"{QEMU}/100/status/reboot")
    third = site.guests.started[2].cloud_init
    assert third is not None
    assert third.instance_id != first.instance_id


def test_starting_twice_and_stopping_twice(site: Site) -> None:
    create(site)
    assert start(site) == "OK"
    assert start(site) == "VM 100 already running"
    stop = f"{QEMU}/100/status/stop"
    assert (site.token.task("POST", stop), site.token.task("POST", stop)) == ("OK", "OK")


def test_a_deaf_guest_fails_the_shutdown_unless_forced(site: Site) -> None:
    create(site)
    start(site)
    site.guests.deaf.add(100)
    path = f"{QEMU}/100/status/shutdown"
    assert site.token.task("POST", path, timeout="1") == "VM quit/powerdown failed - got timeout"
    assert 100 in site.guests.running
    assert site.token.task("POST", path, timeout="1", forceStop="1") == "OK"
    assert 100 not in site.guests.running


def test_a_running_vm_is_not_destroyed_and_a_stopped_one_not_rebooted(site: Site) -> None:
    create(site)
    assert site.token("POST", f"{QEMU}/100/status/reboot").reason == "VM 100 not running"
    start(site)
    answer = site.token("DELETE", f"{QEMU}/100")
    assert (answer.status, answer.reason) == (500, "VM 100 is running - destroy failed")


def test_the_agent_is_missing_or_not_up(site: Site) -> None:
    create(site)
    create(site, 101, agent="enabled=1")
    start(site, 101)
    path = "agent/network-get-interfaces"
    assert site.token("GET", f"{QEMU}/100/{path}").reason == "No QEMU guest agent configured"
    assert site.token("GET", f"{QEMU}/101/{path}").reason == "QEMU guest agent is not running"


def test_a_running_vm_shows_its_process_and_a_stopped_one_does_not(site: Site) -> None:
    create(site, cores="3", memory="768", scsi0="local-disks:2", net0="virtio,bridge=vmbr0")
    off = site.token("GET", f"{QEMU}/100/status/current").data
    assert (off["status"], off["maxmem"], off["maxdisk"], off["cpus"]) == ("stopped", 768 << 20, 2 << 30, 3)
    assert not {"pid", "nics", "balloon"} & off.keys()
    start(site)
    on = site.token("GET", f"{QEMU}/100/status/current").data
    assert (on["status"], on["pid"]) == ("running", site.guests.running[100])
    assert list(on["nics"]) == ["tap100i0"]


def test_rebooting_the_node_stops_guests_and_starts_those_of_the_boot(site: Site) -> None:
    create(site, 100, onboot="1")
    create(site, 101)
    start(site, 100)
    start(site, 101)
    assert site.token("POST", "/nodes/pve/status", command="reboot").data is None
    for task in site.lab.tasks.newest_first():
        site.lab.tasks.wait(task.upid, 10)
    assert site.hypervisor.reboots == 1
    assert list(site.guests.running) == [100]
    assert config(site, 100)["onboot"] == 1
