from provision.contracts.snapshot import Snapshot
from provision.lab.hypervisor_machine import storage_cfg
from provision.proxmox.host_facts import STORAGES, HypervisorFacts


def test_the_hypervisor_tells_the_storages_that_the_api_serves() -> None:
    facts = HypervisorFacts(Snapshot("pve/ssh", answers={STORAGES: storage_cfg().encode()}))
    assert facts.storages == {
        "local": {"type": "dir", "path": "/var/lib/vz", "content": "iso,import,snippets"},
        "local-disks": {"type": "lvmthin", "thinpool": "data", "vgname": "pve", "content": "images,rootdir"},
    }
