"""What other people's hands and tools leave on a host, and what a token may not do there."""

from __future__ import annotations

import pytest

from provision.lab.api import core
from tests.model.lab_api.conftest import Site
from tests.unit.lab_api.client import request, token_client

QEMU = "/nodes/pve/qemu"


@pytest.mark.parametrize(
    ("form", "status", "reason"),
    [
        ({"usb0": "host=1234:5678"}, 500, "only root can set 'usb0' config for real devices"),
        ({"usb0": "spice"}, 200, "OK"),
        ({"virtiofs0": "dirid=shared"}, 200, "OK"),
        ({"vmstatestorage": "local-disks"}, 200, "OK"),
        ({"tpmstate0": "local-disks:1,version=v2.0"}, 200, "OK"),
        ({"pool": "nopool"}, 403, "pool 'nopool' does not exist"),
    ],
)
def test_a_token_at_creation_is_answered_as_by_the_real_one(
    site: Site, form: dict[str, str], status: int, reason: str
) -> None:
    answer = site.token("POST", QEMU, vmid="100", **form)
    assert (answer.status, answer.reason) == (status, reason)


def test_a_token_without_rights_learns_nothing_about_a_missing_storage(site: Site) -> None:
    root = site.root
    root("POST", "/access/users", userid="vm@pve")
    secret = root("POST", "/access/users/vm@pve/token/t1", privsep="0").data["value"]
    root("PUT", "/access/acl", path="/vms", roles="PVEVMAdmin", users="vm@pve")
    user = token_client(site.app, "vm@pve!t1", secret)
    answer = user("POST", QEMU, vmid="100", scsi0="nostore:1")
    assert answer.reason == "Permission check failed (/storage/nostore, Datastore.AllocateSpace)"
    assert root("POST", QEMU, vmid="100", scsi0="nostore:1").reason == "storage 'nostore' does not exist"


def test_a_tpm_has_four_mebibytes_and_a_half_gibibyte_stays_one(site: Site) -> None:
    disks = {"tpmstate0": "local-disks:1,version=v2.0", "scsi0": "local-disks:0.5"}
    assert site.token.task("POST", QEMU, vmid="100", **disks) == "OK"
    config = site.token("GET", f"{QEMU}/100/config").data
    assert config["tpmstate0"].endswith("size=4M,version=v2.0")
    assert config["scsi0"].endswith("size=512M")
    assert config["boot"] == "order=scsi0"


def test_the_clusters_list_is_as_old_as_its_cache(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def listed() -> list[tuple[int, str]]:
        rows = site.token("GET", "/cluster/resources", {"type": "vm"}).data
        return [(row["vmid"], row["status"]) for row in rows]

    site.token.task("POST", QEMU, vmid="100")
    assert listed() == [(100, "stopped")]
    site.token.task("POST", QEMU, vmid="101")
    assert site.token.task("POST", f"{QEMU}/100/status/start") == "OK"
    assert listed() == [(100, "stopped"), (101, "unknown")]
    assert site.token("GET", QEMU).data[0]["status"] == "running"
    monkeypatch.setattr(core, "STATD_SECONDS", 0.0)
    assert listed() == [(100, "running"), (101, "stopped")]


def test_a_clone_is_another_machine_with_the_same_notes(site: Site) -> None:
    made = {
        "net0": "virtio,bridge=vmbr0",
        "scsi0": "local-disks:1",
        "smbios1": "uuid=1-2,serial=c2VyaWFs,base64=1",
    }
    site.root.task("POST", QEMU, vmid="100", name="vm", description="mine", **made)
    assert site.root.task("POST", f"{QEMU}/100/clone", newid="101") == "OK"
    old, new = (site.root("GET", f"{QEMU}/{vmid}/config").data for vmid in (100, 101))
    assert (new["name"], new["description"]) == ("Copy-of-VM-vm", "mine")
    assert new["scsi0"] == old["scsi0"].replace("vm-100", "vm-101")
    assert new["net0"] != old["net0"]
    assert new["smbios1"].partition(",")[2] == old["smbios1"].partition(",")[2]
    assert new["smbios1"] != old["smbios1"]


def test_a_template_does_not_start(site: Site) -> None:
    site.root.task("POST", QEMU, vmid="100")
    assert site.root.task("POST", f"{QEMU}/100/template") == "OK"
    assert site.root("GET", QEMU).data[0]["template"] == 1
    assert "template" in site.root.task("POST", f"{QEMU}/100/status/start")


def test_small_habits_of_the_real_api_are_its_own(site: Site) -> None:
    site.root.task("POST", QEMU, vmid="100")
    empty = site.token("PUT", f"{QEMU}/100/config")
    assert (empty.status, empty.reason) == (500, "no options specified")
    mapping = {"id": "mm", "map": "node=pve,path=0000:02:00,id=1234:1111"}
    site.root("POST", "/cluster/mapping/pci", **mapping)
    again = site.root("POST", "/cluster/mapping/pci", **mapping)
    words = "create hardware mapping failed: pci ID 'mm' already defined"
    assert (again.status, again.reason) == (500, words)
    assert "id" not in site.root("GET", "/cluster/mapping/pci/mm").data
    both = site.root("PUT", f"{QEMU}/100/config", hostpci0="host=0000:02:00,mapping=mm")
    assert both.status == 200
    secret = site.root("POST", "/access/users/root@pam/token/t1", privsep="0").data["value"]
    login = {"Authorization": f"PVEAPIToken=root@pam!t1={secret}"}
    broken = request(site.app, "POST", QEMU, raw=b"{x", content_type="application/json", headers=login)
    assert (broken.status, "at character offset" in broken.reason) == (500, True)
    assert "snapshot feature is not available" in site.root.task(
        "POST", f"{QEMU}/100/snapshot", snapname="before"
    )


def test_usb_mappings_are_kept_and_need_their_rights(site: Site) -> None:
    path = "/cluster/mapping/usb"
    stick = {"id": "stick", "map": "node=pve,id=10c4:ea60,path=1-2"}
    site.root("POST", path, **stick)
    again = site.root("POST", path, **stick)
    assert (again.status, "usb ID 'stick' already defined" in again.reason) == (500, True)
    assert site.root("POST", path, id="bad", map="node=pve,id=10c4").status == 400
    (shown,) = site.root("GET", path).data
    assert (shown["id"], shown["map"]) == ("stick", ["node=pve,id=10c4:ea60,path=1-2"])
    late = site.root("PUT", f"{path}/stick", map="node=pve,id=10c4:ea61", digest="0" * 40)
    assert "detected modified configuration" in late.reason
    site.root("PUT", f"{path}/stick", map="node=pve,id=10c4:ea61", digest=shown["digest"])
    assert site.root("GET", path).data[0]["map"] == ["node=pve,id=10c4:ea61"]
    site.root("DELETE", f"{path}/stick")
    assert site.root("GET", path).data == []


def test_a_disk_stays_while_a_snapshot_needs_it_and_goes_with_the_vm(site: Site) -> None:
    site.root.task("POST", QEMU, vmid="100", scsi0="local-disks:1", name="vm")
    path = site.lab.configs._path(100)
    disk = site.root("GET", f"{QEMU}/100/config").data["scsi0"]
    plain = path.read_text()
    path.write_text(
        f"{plain}parent: s1\n\n[s1]\n#before the upgrade\nname: old\nscsi0: {disk}\nsnaptime: 1796000000\n"
    )
    config = site.token("GET", f"{QEMU}/100/config").data
    assert (config["name"], config["parent"], config.get("snaptime")) == ("vm", "s1", None)
    listed = site.token("GET", f"{QEMU}/100/snapshot").data
    assert [(row["name"], row.get("parent"), row.get("snaptime")) for row in listed] == [
        ("s1", None, 1796000000),
        ("current", "s1", None),
    ]
    assert site.token("PUT", f"{QEMU}/100/config", name="vm2").status == 200
    assert "[s1]" in path.read_text()
    volume = disk.partition(",")[0]
    refused = site.token("PUT", f"{QEMU}/100/unlink", idlist="scsi0", force="1")
    words = f"unable to delete '{volume}' - volume is still in use (snapshot?)"
    assert (refused.status, refused.reason) == (500, words)
    assert site.token("GET", f"{QEMU}/100/config").data["scsi0"] == disk
    assert site.token("PUT", f"{QEMU}/100/unlink", idlist="scsi0").status == 200
    assert site.token("GET", f"{QEMU}/100/config").data["unused0"] == volume
    assert site.token.task("DELETE", f"{QEMU}/100") == "OK"
    assert site.token("GET", "/nodes/pve/storage/local-disks/content").data == []
