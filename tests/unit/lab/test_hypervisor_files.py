from provision.lab.hypervisor_machine import storage_cfg
from provision.resources.proxmox.storage_cfg import storages_of


def test_the_hypervisor_tells_the_storages_that_the_api_serves() -> None:
    known = storages_of(storage_cfg().encode())
    assert known == {
        "local": {"type": "dir", "path": "/var/lib/vz", "content": "iso,import,snippets"},
        "local-disks": {"type": "lvmthin", "thinpool": "data", "vgname": "pve", "content": "images,rootdir"},
    }
