from __future__ import annotations

import pytest

from tests.model.lab_api.conftest import Site
from tests.unit.lab_api.client import token_client

PCI = "/nodes/pve/hardware/pci"
MAPPING = "/cluster/mapping/pci"
ENTRY = "node=pve,path=0000:01:00,id=1234:1111,iommugroup=7,subsystem-id=1af4:1100"


def test_bridges_are_hidden_unless_the_blacklist_is_empty(site: Site) -> None:
    assert [each["id"] for each in site.token("GET", PCI).data] == [
        "0000:01:00.0",
        "0000:02:00.0",
        "0000:02:00.1",
    ]
    everything = site.token("GET", PCI, {"pci-class-blacklist": ""}).data
    assert [each["id"] for each in everything][:2] == ["0000:00:00.0", "0000:00:1c.0"]
    assert everything[2] == {
        "id": "0000:01:00.0",
        "class": "0x038000",
        "vendor": "0x1234",
        "device": "0x1111",
        "subsystem_vendor": "0x1af4",
        "subsystem_device": "0x1100",
        "iommugroup": 7,
    }


def test_node_status_is_the_hypervisors(site: Site) -> None:
    found = site.token("GET", "/nodes/pve/status").data
    assert found["boot-info"] == {"mode": "efi", "secureboot": 0}
    assert found["current-kernel"]["release"] == "6.1.0-lab"
    assert (found["cpuinfo"]["cpus"], found["memory"]["total"]) == (4, 4 << 30)
    assert all(isinstance(each, str) for each in found["loadavg"])


def test_an_unreachable_hypervisor_is_595_and_does_not_stop_the_vm_list(site: Site) -> None:
    site.token.task("POST", "/nodes/pve/qemu", vmid="100")
    site.hypervisor.away = True
    fresh = site.restarted()
    assert fresh.token("GET", "/nodes/pve/status").status == 595
    assert fresh.token("GET", PCI).status == 595
    assert [each["vmid"] for each in fresh.token("GET", "/nodes/pve/qemu").data] == [100]
    assert fresh.token.task("POST", "/nodes/pve/qemu/100/status/start") != "OK"


def test_mappings_are_made_changed_with_their_digest_and_removed(site: Site) -> None:
    token = site.token
    assert token("POST", MAPPING, id="gpu0", map=ENTRY).status == 200
    (found,) = token("GET", MAPPING).data
    assert (found["id"], found["map"], "checks" in found) == ("gpu0", [ENTRY], False)
    (checked,) = token("GET", MAPPING, {"check-node": "pve"}).data
    assert checked["checks"] == []
    assert token("PUT", f"{MAPPING}/gpu0", description="card", digest=found["digest"]).status == 200
    assert token("PUT", f"{MAPPING}/gpu0", description="x", digest=found["digest"]).status == 500
    assert token("GET", f"{MAPPING}/gpu0").data["description"] == "card"
    assert token("PUT", f"{MAPPING}/gpu0", delete="description").status == 200
    assert "description" not in token("GET", f"{MAPPING}/gpu0").data
    assert token("POST", MAPPING, id="gpu0", map=ENTRY).status == 500
    assert token("DELETE", f"{MAPPING}/gpu0").status == 200
    assert token("GET", MAPPING).data == []


@pytest.mark.parametrize(
    "entry", ["node=pve,id=1234:1111", "node=pve,path=01:00,id=1234:1111", "path=x,foo=1"]
)
def test_a_malformed_mapping_is_refused(site: Site, entry: str) -> None:
    answer = site.token("POST", MAPPING, id="gpu0", map=entry)
    assert answer.status == 400
    assert "map[0]" in answer.errors


def test_using_a_mapping_needs_the_right_on_it(site: Site) -> None:
    root = site.root
    root("POST", MAPPING, id="gpu0", map=ENTRY)
    root("POST", "/access/users", userid="vm@pve")
    secret = root("POST", "/access/users/vm@pve/token/t1", privsep="0").data["value"]
    root("PUT", "/access/acl", path="/vms", roles="PVEVMAdmin", users="vm@pve")
    user = token_client(site.app, "vm@pve!t1", secret)
    answer = user("POST", "/nodes/pve/qemu", vmid="100", hostpci0="mapping=gpu0,pcie=1")
    assert answer.reason == "Permission check failed (/mapping/pci/gpu0, Mapping.Use)"
    root("PUT", "/access/acl", path="/mapping/pci/gpu0", roles="PVEMappingUser", users="vm@pve")
    assert user.task("POST", "/nodes/pve/qemu", vmid="100", hostpci0="mapping=gpu0,pcie=1") == "OK"
    answer = user("POST", MAPPING, id="gpu1", map=ENTRY)
    assert answer.reason == "Permission check failed (/mapping/pci, Mapping.Modify)"
    assert user("POST", "/nodes/pve/qemu", vmid="101", net0="virtio,bridge=vmbr0").status == 403


def test_a_network_lists_the_bridges(site: Site) -> None:
    assert [(each["iface"], each["type"]) for each in site.token("GET", "/nodes/pve/network").data] == [
        ("vmbr0", "bridge")
    ]


def test_resources_are_one_request_for_vms_storages_and_node(site: Site) -> None:
    site.token.task("POST", "/nodes/pve/qemu", vmid="100", tags="Provision")
    everything = site.token("GET", "/cluster/resources").data
    assert [each["id"] for each in everything] == [
        "qemu/100",
        "node/pve",
        "storage/pve/local",
        "storage/pve/local-disks",
    ]
    assert everything[0]["tags"] == "provision"
    assert [each["id"] for each in site.token("GET", "/cluster/resources", {"type": "vm"}).data] == [
        "qemu/100"
    ]


def test_an_image_is_listed_and_deleted(site: Site) -> None:
    content = "/nodes/pve/storage/local/content"
    (image,) = site.token("GET", content, {"content": "import"}).data
    assert image["volid"] == "local:import/debian.qcow2"
    assert site.token.task("DELETE", f"{content}/local:import/debian.qcow2") == "OK"
    assert site.token("GET", content).data == []
    answer = site.token("DELETE", f"{content}/local:import/debian.qcow2")
    assert answer.reason == "volume 'local:import/debian.qcow2' does not exist"


def test_download_refuses_names_and_types_before_a_task(site: Site) -> None:
    path = "/nodes/pve/storage/local/download-url"
    form = {"url": "http://127.0.0.1/x", "content": "import"}
    answer = site.token("POST", path, **form, filename="x.img")
    assert answer.errors == {"filename": "invalid filename or wrong extension"}
    assert site.token("POST", path, **form, filename="../x.qcow2").data.split(":")[6] == "x.qcow2"
    answer = site.token("POST", path, **form, filename="x.qcow2", checksum="00")
    assert answer.errors == {"checksum-algorithm": "missing property required by 'checksum'"}
    answer = site.token("POST", "/nodes/pve/storage/local-disks/download-url", **form, filename="x.qcow2")
    assert answer.reason == "storage 'local-disks' is not configured for content-type 'import'"
