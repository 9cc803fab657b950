"""The first disk of a VM is the one that it boots from, on any bus: adopted VMs are taken as they are."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.api.domains import load_inventory
from provision.connections.contracts import KeyPair
from provision.contracts.remedy import ApiCall
from provision.contracts.resource import changes_of, remedy_of
from provision.contracts.role import Context
from provision.contracts.snapshot import Snapshot
from provision.engine.generated import GeneratedValues
from provision.inventory import Subject
from provision.proxmox.queries import VmConfig, VmState
from provision.proxmox.resources.vm import Vm
from provision.proxmox.roles import virtual_machine
from provision.proxmox.vm_disks import disks_of, is_disk, slots_of
from provision.values.errors import UsageError
from tests.unit.proxmox.roles.world import INVENTORY, World

DISK = "local-zfs:vm-102-disk-0,size=4G"

FIRST = [
    ({"ide1": DISK, "boot": "order=ide2;ide1;net0", "ide2": "none,media=cdrom"}, ["ide1"]),
    ({"virtio0": DISK, "boot": "order=virtio0;net0"}, ["virtio0"]),
    ({"sata0": DISK, "boot": "order=sata0"}, ["sata0"]),
    ({"scsi1": DISK, "boot": "order=scsi1"}, ["scsi1"]),
    ({"scsi0": DISK, "scsi1": DISK, "boot": "order=scsi1;scsi0"}, ["scsi1", "scsi0"]),
    ({"scsi0": DISK, "virtio0": DISK, "boot": "order=net0;virtio0"}, ["virtio0", "scsi0"]),
    ({"ide0": DISK, "boot": "cdn", "bootdisk": "ide0"}, ["ide0"]),
    ({"scsi2": DISK, "sata1": DISK, "bootdisk": "sata1"}, ["sata1", "scsi2"]),
    ({"virtio3": DISK}, ["virtio3"]),
    ({"virtio10": DISK, "virtio9": DISK}, ["virtio9", "virtio10"]),
    ({"ide2": "local-zfs:vm-102-cloudinit,media=cdrom", "scsi0": DISK}, ["scsi0"]),
    ({"ide0": "local-zfs:vm-102-cloudinit,size=4M", "sata5": DISK}, ["sata5"]),
    ({"ide2": "local:iso/debian.iso,media=cdrom,size=3G", "boot": "order=ide2"}, []),
    ({"efidisk0": DISK, "tpmstate0": DISK, "unused0": "local-zfs:vm-102-disk-9", "scsi4": DISK}, ["scsi4"]),
    ({"scsi0": "file=/dev/disk/by-id/ata-X,size=1000G", "boot": "order=scsi7;scsi0"}, ["scsi0"]),
    ({"ide2": "cdrom,media=cdrom", "ide3": "none", "sata0": DISK, "boot": " "}, ["sata0"]),
]


@pytest.mark.parametrize(("config", "expected"), FIRST)
def test_the_boot_disk_comes_first_and_no_drive_that_is_no_disk(
    config: dict[str, str], expected: list[str]
) -> None:
    assert list(disks_of(tuple(config), lambda key: config.get(key, ""))) == expected


@pytest.mark.parametrize(
    ("config", "count", "expected"),
    [
        ({}, 2, ["scsi0", "scsi1"]),
        ({"scsi0": DISK}, 3, ["scsi0", "scsi1", "scsi2"]),
        ({"scsi0": DISK, "virtio0": DISK, "boot": "order=scsi0"}, 2, ["scsi0", "scsi1"]),  # virtio0 is theirs
        ({"ide1": DISK}, 2, ["ide1", "scsi0"]),
        ({"virtio0": DISK, "scsi0": DISK, "boot": "order=virtio0"}, 3, ["virtio0", "scsi0", "scsi1"]),
        ({"sata0": DISK, "scsi0": "local:iso/x.iso,media=cdrom"}, 2, ["sata0", "scsi1"]),
    ],
)
def test_declared_disks_are_those_that_are_there_then_new_ones(
    config: dict[str, str], count: int, expected: list[str]
) -> None:
    assert list(slots_of(count, tuple(config), lambda key: config.get(key, ""))) == expected


@given(st.dictionaries(st.from_regex(r"(ide|scsi|virtio|sata)[0-9]", fullmatch=True), st.text(max_size=20)))
def test_any_configuration_gives_each_disk_a_slot_of_its_own(config: dict[str, str]) -> None:
    slots = slots_of(4, tuple(config), lambda key: config.get(key, ""))
    assert len(set(slots)) == len(slots) == 4


class Keys(GeneratedValues):
    def __init__(self) -> None:
        super().__init__(lambda: KeyPair.__new__(KeyPair))


def adopted(folder: Path, slot: str, size: str, declared: str = "4GiB") -> tuple[Vm, Snapshot]:
    """Return the role's VM for one that somebody made with its disk at a slot, and the answers."""
    World(folder).write(INVENTORY.replace("disk: 4GiB", f"disk: {declared}"))
    inventory = load_inventory(folder / "site.yaml")
    lines = [line.partition(": ") for line in MADE_BY_HAND.strip().splitlines()]
    config = {key: value.replace("SIZE", size) for key, _, value in lines}
    config[slot] = config.pop("ide1")
    config["boot"] = config["boot"].replace("ide1", slot)
    config["description"] = "provision: inventory=site node=vm-gpu host-key=SHA256:x"
    state = VmState(102, "gaming", "stopped", config)
    api = Snapshot("pve/api", answers={VmConfig(102): state})
    seen = {"pve/api": api, "pve/ssh": Snapshot("pve/ssh")}
    context = Context(inventory, Subject("node", "vm-gpu"), seen, Keys())
    vm = next(each for each in virtual_machine.resources(context) if isinstance(each, Vm))
    return vm, api


MADE_BY_HAND = """
args: -cpu 'host,-hypervisor,kvm=off'
agent: 1
balloon: 0
bios: ovmf
boot: order=ide2;ide1;net0
cores: 2
cpu: host,hidden=1,flags=+virt-ssbd;+amd-ssbd;+aes
efidisk0: local-zfs:vm-102-disk-1,efitype=4m,size=1M
hostpci0: 0000:02:00,pcie=1,x-vga=1
ide2: none,media=cdrom
machine: pc-q35-9.0
memory: 1024
name: gaming
net0: virtio=BC:24:11:44:00:01,bridge=vmbr0,firewall=1
numa: 0
onboot: 0
ostype: l26
ide1: local-zfs:vm-102-disk-0,size=SIZE
scsihw: virtio-scsi-single
smbios1: uuid=00000000-0000-0000-0000-000000000001
sockets: 1
tags: gpu;prod
"""


@pytest.mark.parametrize("slot", ["ide1", "virtio0", "sata0", "scsi1", "scsi0", "ide0", "virtio15", "sata5"])
def test_an_adopted_vm_keeps_its_disk_on_whatever_bus_it_is(tmp_path: Path, slot: str) -> None:
    vm, api = adopted(tmp_path, slot, "4G")
    assert [(change.path, change.new) for change in changes_of(vm, api)] == [
        ("name", "vm-gpu"),
        ("tags", "gpu;prod;provision"),
    ]


@pytest.mark.parametrize("slot", ["ide1", "virtio0", "sata0", "scsi1"])
def test_the_disk_of_an_adopted_vm_grows_in_its_place(tmp_path: Path, slot: str) -> None:
    vm, api = adopted(tmp_path, slot, "4G", "8GiB")
    assert (f"{slot}.size", "4GiB", "8GiB") in [
        (change.path, change.old, change.new) for change in changes_of(vm, api)
    ]
    remedy = remedy_of(vm, api)
    assert isinstance(remedy, ApiCall)
    assert remedy.requests[-1].data == {"disk": slot, "size": "8G"}


@pytest.mark.parametrize(
    ("disks", "slots"),
    [
        ("[{ size: 1GiB }, { size: 2GiB }]", ["scsi0", "scsi1", "scsi2"]),
        ("[{ size: 1GiB, slot: virtio0 }, { size: 2GiB }]", ["scsi0", "virtio0", "scsi1"]),
        ("[{ size: 1GiB }, { size: 2GiB, slot: scsi1 }]", ["scsi0", "scsi2", "scsi1"]),
        ("[{ size: 1GiB, slot: sata5 }, { size: 2GiB, slot: ide0 }]", ["scsi0", "sata5", "ide0"]),
    ],
)
def test_a_disk_is_made_where_it_is_declared(tmp_path: Path, disks: str, slots: list[str]) -> None:
    world = World(tmp_path)
    world.write(INVENTORY.replace("vmid: 101,", f"vmid: 101, disks: {disks},"))
    assert world.apply().exit_code == 0
    config = world.pve.vms[101].config
    assert {key for key in config if is_disk(key, config[key])} == set(slots)
    assert [config[slot].rpartition("=")[2] for slot in slots[1:]] == ["1G", "2G"]
    assert world.plan().empty


@pytest.mark.parametrize(
    ("disks", "words"),
    [
        ("[{ size: 1GiB, slot: scsi0 }]", "scsi0 of vm-1 is its first disk"),
        ("[{ size: 1GiB, slot: ide2 }]", "ide2 of vm-1 is the drive of cloud-init"),
        ("[{ size: 1GiB, slot: sata1 }, { size: 1GiB, slot: sata1 }]", "the slot sata1"),
        ("[{ size: 1GiB, slot: virtio1, ssd: true }]", "no option ssd for virtio1"),
        ("[{ size: 1GiB, slot: sata6 }]", "not a valid place of a disk"),
    ],
)
def test_a_disk_is_refused_where_it_cannot_be(tmp_path: Path, disks: str, words: str) -> None:
    World(tmp_path).write(INVENTORY.replace("vmid: 101,", f"vmid: 101, disks: {disks},"))
    with pytest.raises(UsageError, match=words):
        load_inventory(tmp_path / "site.yaml")


def test_a_vm_may_keep_the_name_that_it_has(tmp_path: Path) -> None:
    text = INVENTORY.replace("vmid: 102,", "vmid: 102, vm_name: Gaming.lan,")
    World(tmp_path).write(text)
    node = load_inventory(tmp_path / "site.yaml").nodes["vm-gpu"]
    assert (node.name, node.vm_name) == ("vm-gpu", "Gaming.lan")


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("SW-HCA-01", True),
        ("pve", True),
        ("Pve1", True),
        ("1node", True),
        ("node.Lab.example", True),
        ("a" * 63, True),
        ("-pve", False),
        ("pve-", False),
        ("pve_1", False),
        ("a..b", False),
        ("a" * 64, False),
        ("PVE 1", False),
    ],
)
def test_a_node_is_called_as_proxmox_calls_it(tmp_path: Path, name: str, valid: bool) -> None:
    World(tmp_path).write(INVENTORY.replace("address: 10.0.0.5", f"address: 10.0.0.5\n    node: {name}"))
    if valid:
        hypervisor = load_inventory(tmp_path / "site.yaml").hypervisors["pve"]
        assert (hypervisor.name, hypervisor.node_name) == ("pve", name)
    else:
        with pytest.raises(UsageError):
            load_inventory(tmp_path / "site.yaml")


VM_NAMES = (
    # whether Proxmox VE takes it (`dns-name` of PVE/JSONSchema.pm: labels with dots between them)
    ("web", True),
    ("WEB-01", True),
    ("Gaming.lan", True),
    ("a.b.c.d", True),
    ("a--b", True),
    ("7", True),
    ("0x10", True),
    ("xn--grn-hoa", True),
    ("a" * 63, True),
    ("web_1", False),
    ("-web", False),
    ("web-", False),
    ("web..lan", False),
    (".web", False),
    ("web.", False),
    ("web.-lan", False),
    ("web 1", False),
    ("grün", False),
    ("web/1", False),
    ("web\n", False),
    ("", False),
)


def test_a_vm_is_called_as_proxmox_calls_it(tmp_path: Path) -> None:
    for name, valid in VM_NAMES:
        World(tmp_path).write(INVENTORY.replace("vmid: 102,", f"vmid: 102, vm_name: {json.dumps(name)},"))
        taken = None
        with suppress(UsageError):
            taken = load_inventory(tmp_path / "site.yaml").nodes["vm-gpu"].vm_name
        assert taken == (name if valid else None), name
