"""Failure texts of Proxmox VE say what helps; the texts are those of 9.2.11, or of its sources."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.proxmox.failures import FAILURES, classify

TEXTS = [
    (
        "only root can set 'hostpci0' config for non-mapped devices\n",
        "PVE_AUTH_TOKEN_RAW_PCI",
        "--delete hostpci0",
    ),
    ("only root can set 'args' config\n", "ROOT_ONLY_KEY", "--args VALUE"),
    ("no PCI device found for '0000:77:00'", "CARD_MISSING", "0000:77:00"),
    (
        "PCI device mapping invalid (hardware probably changed): 'id' does not match (10de:2204 != 10de:1)",
        "MAPPING_INVALID",
        "lspci -nn",
    ),
    ("PCI device mapping not found for 'nomap'", "MAPPING_MISSING", "nomap"),
    (
        "unable to create VM 110 - disk image '/var/lib/vz/images/110/vm-110-cloudinit.qcow2' already exists",
        "DISK_LEFT",
        "vm-110-cloudinit.qcow2",
    ),
    ("500 VM is locked (backup)", "VM_LOCKED", "backup"),
    ("PCI device '0000:02:00.0' already in use by VMID '102'", "GPU_CLAIMED_BY_OTHER_VM", "qm shutdown 102"),
    (
        "PCI device '0000:02:00.0' is currently reserved for use by VMID '7'",
        "GPU_CLAIMED_BY_OTHER_VM",
        "qm shutdown 7",
    ),
    (
        "vfio 0000:02:00.0: Failed to set iommu for container: Operation not permitted",
        "IOMMU_NO_IRQ_REMAP",
        "x2APIC",
    ),
    ("device '0000:02:00.0' assigned more than once", "CARD_PASSED_TWICE", "0000:02:00.0"),
    ("could not find a free device for 'hostpci1'", "CARDS_IN_USE", "qm list"),
    ("cannot prepare PCI pass-through, IOMMU not present", "IOMMU_OFF", "VT-d"),
    ("can't unbind/bind PCI group to VFIO '0000:02:00.0'", "VFIO_BIND_FAILED", "lspci -nnk"),
    ("Cannot bind 0000:02:00.0 to vfio", "VFIO_BIND_FAILED", "dmesg"),
    ("kvm: vfio 0000:02:00.0: group 13 is not viable", "VFIO_BIND_FAILED", "dmesg"),
    ("can't reset PCI device '0000:02:00.0'", "CARD_NOT_RESET", "Reboot"),
    (
        "q35 machine model is not enabled at /usr/share/perl5/PVE/QemuServer/PCI.pm line 510.",
        "MACHINE_NOT_Q35",
        "machine: q35",
    ),
    ("MAX 20 vcpus allowed per VM on this node", "CORES_EXCEED_HOST", "at most 20"),
    ("kvm: cannot set up guest memory 'pc.ram': Cannot allocate memory", "HOST_MEMORY_OVERCOMMIT", "memory"),
    ("bridge 'vmbr9' does not exist", "BRIDGE_MISSING", "vmbr9"),
    ("storage 'nope' does not exist\n", "STORAGE_MISSING", "nope"),
    ("storage 'local' is disabled", "STORAGE_UNAVAILABLE", "local"),
    ("storage 'snips' is not available on node 'pve'", "STORAGE_UNAVAILABLE", "snips"),
    ("unable to create image: No space left on device", "STORAGE_FULL", "pvesm status"),
    ("checksum mismatch: got 'bc91' != expect '0000'", "IMAGE_CHECKSUM", "bc91"),
    ("checksum mismatch: got 'bc91' != expect '0000', aborting", "IMAGE_CHANGED", "bc91"),
    ("download failed: exit code 8", "IMAGE_DOWNLOAD", "URL"),
    ("unable to create VM 102 - VM 102 already exists on node 'pve1'\n", "VMID_TAKEN_FOREIGN", "102"),
    ("VM quit/powerdown failed - got timeout", "VM_TIMEOUT", "console"),
    ("cluster not ready - no quorum?", "NO_QUORUM", "pvecm status"),
    ("hostname lookup 'PVE9' failed - failed to get address info for: PVE9", "HOST_UNREACHED", "PVE9"),
]


@pytest.mark.parametrize(("text", "code", "helps"), TEXTS, ids=[text[:30] for text, *_ in TEXTS])
def test_a_failure_text_has_its_code_and_what_helps(text: str, code: str, helps: str) -> None:
    found, remedy = classify(text)
    assert found == code
    assert helps in remedy
    assert "{" not in remedy


@pytest.mark.parametrize(
    "text", ["", "unexpected", "zfs error: fake zfs: no rename", "SSH public key validation error\n"]
)
def test_a_text_that_nobody_has_seen_stays_as_it_is(text: str) -> None:
    assert classify(text) == ("", "")


def test_each_kind_has_a_text_in_the_table() -> None:
    assert {code for _, code, _ in TEXTS} == {failure.code for failure in FAILURES}
    for failure in FAILURES:
        assert re.search(r"`[^`]+`|[A-Z][a-z]+ ", failure.remedy)


@given(st.text(max_size=60))
def test_any_text_is_classified_or_not(text: str) -> None:
    code, remedy = classify(text)
    assert bool(code) == bool(remedy)
