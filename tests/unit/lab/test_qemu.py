from __future__ import annotations

import itertools
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from provision.lab import accel, qemu
from provision.lab.contracts import CloudInit, GuestError, GuestSpec, Nic
from provision.lab.hypervisor import parse_pci
from provision.lab.hypervisor_machine import vm_command
from provision.lab.settings import Card, LabSettings


@pytest.fixture
def spec(tmp_path: Path) -> GuestSpec:
    disk = tmp_path / "vm,1.qcow2"
    disk.write_bytes(b"QFI\xfb")
    seed = CloudInit(hostname="vm", user="debian", ssh_keys="", instance_id="i", vendor=None)
    return GuestSpec(
        vmid=100,
        name="vm",
        cores=8,
        memory=16384,
        machine="pc",
        firmware="seabios",
        disks=(disk,),
        efivars=None,
        nics=(Nic("BC:24:11:00:00:01", "vmbr0"),),
        cloud_init=seed,
    )


def words(argv: list[str], option: str) -> list[str]:
    return [value for name, value in itertools.pairwise(argv) if name == option]


def test_a_plain_guest_boots_its_disk_with_seed_and_tap(spec: GuestSpec) -> None:
    argv = qemu.guest_command(spec, accel.TCG, ("t100i0",))
    assert words(argv, "-machine") == ["pc,smm=off"]
    disk, seed = words(argv, "-drive")
    assert "format=qcow2" in disk
    assert "vm,,1.qcow2" in disk
    assert seed.startswith("file=seed.iso")
    assert words(argv, "-netdev") == ["tap,id=net0,ifname=t100i0,script=no,downscript=no"]
    assert "virtio-net-pci,netdev=net0,mac=bc:24:11:00:00:01,romfile=" in words(argv, "-device")
    assert "virtio-balloon-pci" in words(argv, "-device")


def test_a_guest_never_gets_more_than_a_small_machine_can_give(
    spec: GuestSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROVISION_LAB_GUEST_MEMORY", raising=False)
    argv = qemu.guest_command(spec, accel.TCG, ("t",))
    assert int(words(argv, "-smp")[0]) <= 2
    assert words(argv, "-m") == ["2048"]
    monkeypatch.setenv("PROVISION_LAB_GUEST_MEMORY", "1024")
    assert qemu.guest_memory(16384) == 1024


def test_a_guest_with_a_card_gets_one_behind_a_root_port_of_its_own(spec: GuestSpec, tmp_path: Path) -> None:
    with_card = replace(
        spec, machine="q35", firmware="ovmf", efivars=tmp_path / "vars", cards=2, balloon=False
    )
    argv = qemu.guest_command(with_card, accel.TCG, ("t",))
    devices = words(argv, "-device")
    assert [device for device in devices if device.startswith("secondary-vga")] == [
        "secondary-vga,bus=card0",
        "secondary-vga,bus=card1",
    ]
    assert sum(drive.startswith("if=pflash") for drive in words(argv, "-drive")) == 2
    assert "virtio-balloon-pci" not in devices


def test_ovmf_without_its_variables_cannot_start(spec: GuestSpec) -> None:
    with pytest.raises(GuestError, match="variables"):
        qemu.guest_command(replace(spec, firmware="ovmf"), accel.TCG, ("t",))


def test_a_missing_disk_is_named(spec: GuestSpec, tmp_path: Path) -> None:
    with pytest.raises(GuestError, match=r"gone\.qcow2"):
        qemu.guest_command(replace(spec, disks=(tmp_path / "gone.qcow2",)), accel.TCG, ("t",))


def test_the_hypervisor_has_an_iommu_and_its_cards() -> None:
    settings = LabSettings(
        "lab", "qemu", {"pve": "198.18.0.5"}, cards=(Card("gpu0"), Card("gpu1", shares_group=True))
    )
    argv = vm_command(settings, accel.TCG, "thv")
    assert "q35,kernel-irqchip=split,smm=off" in words(argv, "-machine")
    devices = words(argv, "-device")
    assert "intel-iommu,intremap=on,caching-mode=on" in devices
    alone, shared = (device for device in devices if device.startswith("secondary-vga"))
    assert alone == "secondary-vga,bus=port1"
    bridge = next(device for device in devices if device.startswith("pcie-pci-bridge"))
    assert "bus=port2" in bridge
    behind = [device for device in devices if "bus=bridge2" in device]
    assert shared in behind
    assert len(behind) == 2


def test_the_listing_of_functions_is_read() -> None:
    text = (
        "0000:01:00.0 0x038000 0x1234 0x1111 0x1af4 0x1100 5 bochs-drm 0\n"
        "0000:00:1f.0 0x060100 0x8086 0x2918 0x1af4 0x1100 -1 - 0\n"
    )
    card, bridge = parse_pci(text)
    assert (card.address, card.cls, card.vendor, card.device) == ("0000:01:00.0", "038000", "1234", "1111")
    assert (card.driver, card.iommu_group) == ("bochs-drm", 5)
    assert (bridge.driver, bridge.iommu_group) == (None, -1)


def test_the_proof_s_program_is_a_static_executable_with_its_text() -> None:
    archive = accel.proof_initramfs()
    start = archive.index(b"\x7fELF")
    entry = struct.unpack_from("<Q", archive, start + 24)[0]
    program = archive[start:]
    address = struct.unpack_from("<Q", program, entry - 0x400000 + 7)[0]
    assert program[address - 0x400000 :].startswith(accel.PROOF)
    assert archive.count(b"070701") == 4


def test_kvm_is_not_taken_where_it_only_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_CACHE", str(tmp_path))
    tried: list[tuple[str, ...]] = []

    def hangs(_kernel: Path, accelerator: tuple[str, ...]) -> bool:
        tried.append(accelerator)
        return False

    monkeypatch.setattr(accel, "prove", hangs)
    monkeypatch.setattr(accel, "KVM_DEVICE", tmp_path)
    assert accel.choose(tmp_path / "vmlinuz") == accel.TCG
    assert accel.choose(tmp_path / "vmlinuz") == accel.TCG
    assert tried == [accel.KVM]
