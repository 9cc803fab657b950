from __future__ import annotations

import threading
from typing import Any
from urllib.parse import quote

import pytest

from tests.model.lab_api.conftest import Site
from tests.unit.lab_api.client import request

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGfm0mBzqYyqfm0mBzqYyqfm0mBzqYyqfm0mBzqYyqfm a@b"
QEMU = "/nodes/pve/qemu"


def create(site: Site, vmid: int = 100, /, **form: Any) -> str:
    return site.token.task("POST", QEMU, vmid=str(vmid), **form)


def config(site: Site, vmid: int = 100, **query: str) -> dict[str, Any]:
    found: dict[str, Any] = site.token("GET", f"{QEMU}/{vmid}/config", query).data
    return found


def put(site: Site, vmid: int = 100, **form: Any) -> None:
    answer = site.token("PUT", f"{QEMU}/{vmid}/config", **form)
    assert answer.status == 200, answer


def test_create_fills_in_what_pve_fills_in(site: Site) -> None:
    assert create(site, name="a", net0="virtio,bridge=vmbr0", scsi0="local-disks:3,iothread=1") == "OK"
    found = config(site)
    assert found["boot"] == "order=scsi0;net0"
    assert found["scsi0"] == "local-disks:vm-100-disk-0,iothread=1,size=3G"
    assert found["net0"].startswith("virtio=BC:24:11:")
    assert {"digest", "meta", "smbios1", "vmgenid"} <= found.keys()
    assert (site.folder / "storage/local-disks/vm-100-disk-0.qcow2").exists()


def test_values_have_the_types_of_the_real_api(site: Site) -> None:
    create(site, memory="2048", cores="2", sockets="1", balloon="0", onboot="0", numa="1")
    found = config(site)
    assert {key: found[key] for key in ("memory", "cores", "sockets", "balloon", "onboot", "numa")} == {
        "memory": "2048",
        "cores": 2,
        "sockets": 1,
        "balloon": 0,
        "onboot": 0,
        "numa": 1,
    }


def test_a_json_body_may_use_true_booleans(site: Site) -> None:
    answer = request(
        site.app,
        "POST",
        QEMU,
        raw=b'{"vmid": 100, "onboot": true, "cores": 2}',
        content_type="application/json",
        headers=site.token.headers,
    )
    site.lab.tasks.wait(answer.data)
    assert (config(site)["onboot"], config(site)["cores"]) == (1, 2)


def test_an_image_is_imported_with_a_cloud_init_drive(site: Site) -> None:
    status = create(
        site,
        scsi0="local-disks:0,import-from=local:import/debian.qcow2",
        ide2="local-disks:cloudinit",
        sshkeys=quote(KEY, safe=""),
        ciuser="admin",
    )
    assert status == "OK"
    found = config(site)
    assert found["scsi0"] == "local-disks:vm-100-disk-0,size=2G"
    assert found["ide2"] == "local-disks:vm-100-cloudinit,media=cdrom"
    assert found["boot"] == "order=scsi0;ide2"


def test_until_the_task_ends_only_the_lock_shows(site: Site) -> None:
    gate = site.guests.import_gate = threading.Event()
    source = "local-disks:0,import-from=local:import/debian.qcow2"
    upid = site.token("POST", QEMU, vmid="100", name="a", scsi0=source).data
    assert config(site).keys() == {"lock", "digest"}
    assert config(site)["lock"] == "create"
    gate.set()
    site.lab.tasks.wait(upid, 10)
    assert config(site)["name"] == "a"


def test_a_failed_create_leaves_neither_config_nor_disks(site: Site) -> None:
    status = create(site, efidisk0="local-disks:1", scsi0="local-disks:0,import-from=local:import/none.qcow2")
    assert status == "unable to create VM 100 - could not get size of local:import/none.qcow2"
    assert site.token("GET", QEMU).data == []
    assert list((site.folder / "storage" / "local-disks").iterdir()) == []


@pytest.mark.parametrize(
    ("form", "status", "reason", "errors"),
    [
        ({"scsi0": "nope:1"}, 500, "storage 'nope' does not exist", {}),
        (
            {"scsi0": "local:1"},
            400,
            "Parameter verification failed.",
            {"storage": "storage 'local' does not support vm images"},
        ),
        (
            {"scsi0": "local-disks:0,import-from=local:iso/a.img"},
            400,
            "Parameter verification failed.",
            {"scsi0": "local:iso/a.img has wrong type 'iso' - needs to be 'images' or 'import'"},
        ),
        ({"sshkeys": "ssh-ed25519%20AAAA%20x"}, 500, "SSH public key validation error", {}),
        ({"args": "-x"}, 500, "only root can set 'args' config", {}),
        (
            {"hostpci0": "0000:01:00"},
            500,
            "only root can set 'hostpci0' config for non-mapped devices",
            {},
        ),
        ({"lock": "backup"}, 500, "only root can set 'lock' config", {}),
        ({"serial0": "/dev/ttyS0"}, 500, "only root can set 'serial0' config", {}),
    ],
)
def test_what_pve_refuses_before_a_task_is_refused_and_makes_nothing(
    site: Site, form: dict[str, str], status: int, reason: str, errors: dict[str, str]
) -> None:
    answer = site.token("POST", QEMU, vmid="100", **form)
    assert (answer.status, answer.reason, answer.errors) == (status, reason, errors)
    assert not site.lab.configs.exists(100)


def test_a_taken_number_and_the_next_free_one(site: Site) -> None:
    create(site)
    answer = site.token("POST", QEMU, vmid="100")
    assert answer.reason == "unable to create VM 100 - VM 100 already exists on node 'pve'"
    assert site.token("GET", "/cluster/nextid").data == "101"
    assert site.token("GET", "/cluster/nextid", {"vmid": "100"}).errors == {"vmid": "VM 100 already exists"}


def test_a_stale_digest_is_refused_and_equal_values_keep_it(site: Site) -> None:
    create(site, cores="2")
    digest = config(site)["digest"]
    put(site, cores="2", digest=digest)
    assert config(site)["digest"] == digest
    put(site, cores="3", digest=digest)
    answer = site.token("PUT", f"{QEMU}/100/config", cores="4", digest=digest)
    assert answer.reason == "checksum mismatch (file change by other user?)"
    assert config(site)["cores"] == 3


def test_a_running_vm_takes_options_at_once_and_hardware_later(site: Site) -> None:
    create(site, cores="1")
    site.token.task("POST", f"{QEMU}/100/status/start")
    put(site, cores="2", memory="1024", tags="B;a", description="two\nlines")
    now = config(site, current="1")
    assert (now["cores"], "memory" in now, now["tags"], now["description"]) == (1, False, "a;b", "two\nlines")
    assert (config(site)["cores"], config(site)["memory"]) == (2, "1024")
    waiting = {each["key"]: each for each in site.token("GET", f"{QEMU}/100/pending").data}
    assert waiting["cores"] == {"key": "cores", "value": 1, "pending": 2}
    assert waiting["memory"] == {"key": "memory", "pending": "1024"}


def test_a_pending_value_can_be_reverted_and_a_deletion_waits_too(site: Site) -> None:
    create(site, cores="1", sockets="1")
    site.token.task("POST", f"{QEMU}/100/status/start")
    put(site, cores="2", delete="sockets")
    waiting = {each["key"]: each for each in site.token("GET", f"{QEMU}/100/pending").data}
    assert waiting["sockets"] == {"key": "sockets", "value": 1, "delete": 1}
    put(site, revert="cores,sockets")
    assert not any(
        {"pending", "delete"} & each.keys() for each in site.token("GET", f"{QEMU}/100/pending").data
    )


def test_pending_changes_apply_at_stop_and_start_and_at_the_apis_reboot(site: Site) -> None:
    create(site, cores="1")
    site.token.task("POST", f"{QEMU}/100/status/start")
    put(site, cores="2")
    assert site.token.task("POST", f"{QEMU}/100/status/reboot") == "OK"
    assert config(site, current="1")["cores"] == 2
    put(site, cores="3")
    site.token.task("POST", f"{QEMU}/100/status/stop")
    assert config(site, current="1")["cores"] == 2
    site.token.task("POST", f"{QEMU}/100/status/start")
    assert [spec.cores for spec in site.guests.started] == [1, 2, 3]


def test_a_network_device_sent_without_its_mac_gets_a_new_one(site: Site) -> None:
    create(site, net0="virtio=aa:bb:cc:00:00:01,bridge=vmbr0")
    assert config(site)["net0"] == "virtio=aa:bb:cc:00:00:01,bridge=vmbr0"
    put(site, net0="virtio,bridge=vmbr0")
    assert config(site)["net0"].startswith("virtio=BC:24:11:")


def test_a_deleted_disk_becomes_unused_and_goes_when_that_is_deleted(site: Site) -> None:
    create(site, scsi0="local-disks:1")
    path = site.folder / "storage/local-disks/vm-100-disk-0.qcow2"
    put(site, delete="scsi0")
    assert config(site)["unused0"] == "local-disks:vm-100-disk-0"
    assert path.exists()
    put(site, delete="unused0")
    assert not path.exists()


def test_disks_grow_and_never_shrink(site: Site) -> None:
    create(site, scsi0="local-disks:2")
    path = f"{QEMU}/100/resize"
    assert site.token.task("PUT", path, disk="scsi0", size="+3G") == "OK"
    assert config(site)["scsi0"].endswith("size=5G")
    assert site.token.task("PUT", path, disk="scsi0", size="4G") == "shrinking disks is not supported"
    assert config(site)["scsi0"].endswith("size=5G")


def test_a_disk_of_a_running_vm_does_not_grow(site: Site) -> None:
    create(site, scsi0="local-disks:2")
    site.token.task("POST", f"{QEMU}/100/status/start")
    status = site.token.task("PUT", f"{QEMU}/100/resize", disk="scsi0", size="+1G")
    assert status == "the lab grows disks only of VMs that are off"
    assert config(site)["scsi0"].endswith("size=2G")


def test_no_key_can_make_a_delete_reach_other_files(site: Site) -> None:
    outside = site.folder / "storage" / "victim.raw"
    outside.write_bytes(b"x")
    create(site)
    for value in ("local-disks:vm-100-/../../victim", "local-disks:../victim", "/etc/passwd"):
        assert site.token("PUT", f"{QEMU}/100/config", unused0=value).status == 400
        assert site.token("PUT", f"{QEMU}/100/config", scsi0=value).status in {400, 500}
    assert site.token.task("DELETE", f"{QEMU}/100", {"destroy-unreferenced-disks": "1"}) == "OK"
    assert outside.exists()


def test_a_missing_vm_is_500_with_its_file_name(site: Site) -> None:
    for method, path in (("GET", "config"), ("GET", "status/current"), ("PUT", "config"), ("GET", "pending")):
        answer = site.root(method, f"{QEMU}/999/{path}")
        text = "Configuration file 'nodes/pve/qemu-server/999.conf' does not exist"
        assert (answer.status, answer.reason) == (500, text)


def test_delete_removes_own_disks_and_unreferenced_ones_with_the_option(site: Site) -> None:
    create(site, scsi0="local-disks:1")
    create(site, 101, scsi0="local-disks:1")
    disks = site.folder / "storage" / "local-disks"
    (disks / "vm-100-disk-7.qcow2").write_bytes(b"")
    assert site.token.task("DELETE", f"{QEMU}/100", {"destroy-unreferenced-disks": "1", "purge": "1"}) == "OK"
    assert [path.name for path in disks.iterdir()] == ["vm-101-disk-0.qcow2"]
    assert site.guests.forgotten == [100]
    assert [each["vmid"] for each in site.token("GET", QEMU).data] == [101]


def test_a_locked_vm_refuses_changes_and_only_root_skips_the_lock(site: Site) -> None:
    create(site)
    assert site.root("PUT", f"{QEMU}/100/config", lock="backup").status == 200
    assert site.token("PUT", f"{QEMU}/100/config", cores="2").reason == "VM is locked (backup)"
    assert site.token.task("POST", f"{QEMU}/100/status/start") == "VM is locked (backup)"
    assert site.token.task("DELETE", f"{QEMU}/100") == "VM is locked (backup)"
    answer = site.token("PUT", f"{QEMU}/100/config", delete="lock", skiplock="1")
    assert answer.errors == {"skiplock": "Only root may use this option."}
    assert site.root("PUT", f"{QEMU}/100/config", delete="lock", skiplock="1").status == 200
    assert site.token.task("POST", f"{QEMU}/100/status/start") == "OK"


def test_a_token_may_not_touch_what_root_set(site: Site) -> None:
    site.root.task("POST", QEMU, vmid="100", hostpci0="0000:01:00", machine="q35")
    answer = site.token("PUT", f"{QEMU}/100/config", delete="hostpci0")
    assert answer.reason == "only root can set 'hostpci0' config for non-mapped devices"


def test_unknown_paths_and_nodes_are_answered_like_the_real_ones(site: Site) -> None:
    answer = site.token("GET", "/nodes/pve/nothing")
    assert (answer.status, answer.reason) == (501, "Method 'GET /nodes/pve/nothing' not implemented")
    answer = site.token("GET", "/nodes/zzz/qemu")
    assert answer.status == 500
    assert answer.reason.startswith("hostname lookup 'zzz' failed")
