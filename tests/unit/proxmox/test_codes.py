"""Each situation that stops a passthrough has its code, its remedy and a test that names it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SITUATIONS = {
    "a token may not pass a card without a mapping": "PVE_AUTH_TOKEN_RAW_PCI",
    "a privilege is missing": "PVE_PRIV_MISSING",
    "the version is not supported": "PVE_VERSION_UNSUPPORTED",
    "a storage takes no images to import": "STORAGE_NO_IMPORT",
    "a storage is full": "STORAGE_FULL",
    "the IOMMU is off": "IOMMU_OFF",
    "an IOMMU group is shared": "IOMMU_GROUP_SHARED",
    "interrupts are not remapped": "IOMMU_NO_IRQ_REMAP",
    "a driver of the host has the card": "HOST_DRIVER_BOUND",
    "the card is the boot display": "GPU_IS_BOOT_VGA",
    "another VM has the card": "GPU_CLAIMED_BY_OTHER_VM",
    "the card has another address": "GPU_ADDRESS_MOVED",
    "a mapping does not fit": "MAPPING_INVALID",
    "the boot loader is unknown": "BOOT_LOADER_UNKNOWN",
    "the command line is not active": "KERNEL_LINE_NOT_TAKEN",
    "a reboot is required": "CONSENT_MISSING",
    "start at boot is forbidden": "ONBOOT_FORBIDDEN",
    "memory is not enough": "HOST_MEMORY_OVERCOMMIT",
    "the number belongs to another VM": "VMID_TAKEN_FOREIGN",
    "a MAC is used twice": "MAC_DUPLICATE",
    "the address is leased to another": "IP_LEASED_TO_OTHER",
    "a reservation is not read back": "NOT_AS_DESIRED",
    "the lease is another address": "LEASE_NOT_RESERVED_IP",
    "the router would not serve a reservation": "DHCP_SERVER_UNUSABLE",
    "the VM is locked": "VM_LOCKED",
    "a task failed": "TASK_FAILED",
    "a task ended unknown": "TASK_UNKNOWN",
    "a VM on i440fx has PCI Express": "MACHINE_NOT_Q35",
    "the card is missing": "CARD_MISSING",
    "the mapping is missing": "MAPPING_MISSING",
    "the bridge is missing": "BRIDGE_MISSING",
    "the VM has more processors than the host": "CORES_EXCEED_HOST",
}
"""By what the user meets; the codes are interfaces."""


@cache
def _texts(folder: str) -> str:
    own = Path(__file__).name
    files = (ROOT / folder).rglob("*.py")
    return "\n".join(path.read_text("utf-8") for path in files if path.name != own)


@pytest.mark.parametrize("code", SITUATIONS.values(), ids=list(SITUATIONS))
def test_a_situation_has_its_code_and_a_test(code: str) -> None:
    assert f'"{code}"' in _texts("provision")
    assert code in _texts("tests")
