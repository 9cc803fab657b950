from __future__ import annotations

from pathlib import Path

import pytest

from provision.api import read_playbook, roles_of
from provision.api.domains import domains
from provision.api.domains import load_inventory as load
from provision.api.support import unsupported, untested
from provision.inventory import select
from provision.values.consent import Consent

ROOT = Path(__file__).parents[3]
SHIPPED = ["starter", "tour", "lab", "homelab", "h100-pair", "h100-kai", "h100-kai-fractions"]


def test_exactly_these_inventories_ship() -> None:
    assert sorted(each.stem for each in (ROOT / "inventories").glob("*.yaml")) == sorted(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_inventory_is_valid_and_well_formed(name: str) -> None:
    inventory = load(ROOT / "inventories" / f"{name}.yaml", environ={})
    assert inventory.name == name
    assert inventory.placeholders() == []


@pytest.mark.parametrize("name", ["homelab", "h100-pair"])
def test_the_designs_examples_are_valid(name: str) -> None:
    path = ROOT.parent / "shared" / "design" / "inventories" / f"{name}.yaml"
    if not path.exists():
        pytest.skip("../shared is not beside the checkout")
    assert (
        load(path, environ={}).nodes.keys()
        == load(ROOT / "inventories" / f"{name}.yaml", environ={}).nodes.keys()
    )


HOST_DOMAINS = ("hosts", "proxmox", "dhcp")


def test_lab_inventory_uses_every_role_of_site_and_nothing_unsupported() -> None:
    inventory = load(ROOT / "inventories" / "lab.yaml", environ={})
    subjects = [*select(inventory, "hypervisors"), *select(inventory, "nodes")]
    of_hosts = {name for domain in domains() if domain.name in HOST_DOMAINS for name in domain.roles}
    for name, role in roles_of(read_playbook("site")).items():
        if name not in of_hosts - {"shared_storage"}:
            continue  # the lab has no cluster, and no file server
        assert any(role.declared(inventory, subject) for subject in subjects), name
    assert unsupported(inventory) == ()
    for cls in ("reboot-hypervisor", "reboot-guest", "power-cycle", "console-loss", "delete"):
        assert inventory.consent(cls) is Consent.ALLOW


def test_the_lab_has_resources_of_every_kind_on_hypervisor_and_guests() -> None:
    inventory = load(ROOT / "inventories" / "lab.yaml", environ={})
    kinds = {"file", "package", "service", "sysctl", "kernel_module", "command"}
    assert {resource.kind for resource in inventory.hypervisors["pve"].host_resources} == kinds
    assert {resource.kind for resource in inventory.nodes["vm-1"].host_resources} == kinds


def test_what_no_role_serves_is_named_with_its_place() -> None:
    for path in sorted((ROOT / "inventories").glob("*.yaml")):
        inventory = load(path, environ={})
        problems = [each.problem(inventory) for each in unsupported(inventory)]
        assert all(problem.source is not None for problem in problems), path


def test_the_two_nodes_with_roce_are_served_whole() -> None:
    inventory = load(ROOT / "inventories" / "h100-pair.yaml", environ={})
    assert [each.role for each in unsupported(inventory)] == []


def test_the_homelab_is_the_one_of_the_facts() -> None:
    nodes = load(ROOT / "inventories" / "homelab.yaml", environ={}).nodes
    names = {
        name: (node.vmid, node.address, node.cores, node.memory, node.disk) for name, node in nodes.items()
    }
    assert names == {
        "vm-1": (100, "192.168.100.53", 4, 4096, 61440),
        "vm-2": (101, "192.168.100.54", 4, 4096, 61440),
        "vm-gpu": (102, "192.168.100.55", 8, 16384, 204800),
    }
    gpu = nodes["vm-gpu"]
    assert (gpu.machine_type, gpu.firmware, gpu.cpu_type, gpu.balloon_memory, gpu.starts_at_boot) == (
        *("q35", "ovmf", "host", 0),
        False,
    )
    assert gpu.driver is not None
    assert gpu.driver.branch == "580-server"
    assert nodes["vm-1"].driver is None


def test_fractions_replace_the_sharing_of_the_pair() -> None:
    inventory = load(ROOT / "inventories" / "h100-kai-fractions.yaml", environ={})
    assert [note.summary.rpartition(": ")[2] for note in untested(inventory)] == [
        "GPU drivers of Ubuntu and NVIDIA",
        "RDMA ports of physical NICs",
        "RDMA networks of pods",
        "GPU fractions over MPS, an experiment",
    ]
    assert not {each.role for each in unsupported(inventory)} & {"kai_fractions", "gpu_toolkit"}
    assert inventory.sharing is not None
    assert (inventory.sharing.mode, inventory.sharing.version, inventory.sharing.cards) == (
        "kai_fractions",
        None,
        {},
    )
    driver = inventory.nodes["gpu05"].driver
    assert driver is not None
    assert (driver.manage, driver.branch, driver.minimum) == (True, "615", None)


def test_placeholders_are_accepted_and_named_with_the_command(tmp_path: Path) -> None:
    text = (ROOT / "inventories" / "homelab.yaml").read_text()
    lines = []
    for line in text.splitlines():
        key, colon, _ = line.partition(": ")
        value = {"sha256": '"<64 hex digits>"', "fingerprint": '"AA:BB:..."'}.get(key.strip())
        lines.append(f"{key}{colon}{value}" if value else line)
    path = tmp_path / "homelab.yaml"
    path.write_text("\n".join(lines))
    problems = load(path, environ={}).placeholders()
    assert [problem.remedy.split()[1] for problem in problems] == ["pin", "bootstrap"]
