"""What a failure text of Proxmox VE means: a code of ours, and what helps.

The API tells causes only by texts, most of them as the exit status of a task. Sources: qemu-server
`PVE/QemuServer/PCI.pm`, `PVE/QemuServer.pm`, pve-common `PVE/SysFSTools.pm`, pve-guest-common
`PVE/Mapping/PCI.pm`, pve-storage `PVE/Storage.pm`; the recorded answers of 9.2.11.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """One kind of failure.

    Args:
        code: our code.
        pattern: a stable part of the text; its groups stand in the remedy.
        remedy: what helps; `{0}` is the first group.
    """

    code: str
    pattern: re.Pattern[str]
    remedy: str


def _failure(code: str, pattern: str, remedy: str) -> Failure:
    return Failure(code, re.compile(pattern), remedy)


FAILURES: tuple[Failure, ...] = (
    _failure(
        "PVE_AUTH_TOKEN_RAW_PCI",
        r"only root can set '(hostpci\d+)' config",
        "An API token may not set or remove a card without a mapping. Remove the entry on the host:"
        " `qm set VMID --delete {0}`, then run the command again.",
    ),
    _failure(
        "ROOT_ONLY_KEY",
        r"only root can set '([\w.-]+)' config",
        "Set it on the host as root: `qm set VMID --{0} VALUE`.",
    ),
    _failure(
        "CARD_MISSING",
        r"no PCI device found for '([^']*)'|pci device '([^']*)' not found",
        "The host has no card at {0}. List its cards: `lspci -nn`, and correct the address of the card.",
    ),
    _failure(
        "MAPPING_INVALID",
        r"(?:PCI device mapping|USB Mapping) invalid \(hardware probably changed\)",
        "The card has moved, or another one is in its slot. Compare the addresses: `lspci -nn`, correct"
        " the inventory, and run the command again: this updates the mapping.",
    ),
    _failure(
        "MAPPING_MISSING",
        r"(?:PCI|USB) device mapping not found for '([^']*)'",
        "The mapping {0} is not there for this node. Run the command again with its step pci_mapping.",
    ),
    _failure(
        "GPU_CLAIMED_BY_OTHER_VM",
        r"PCI device '[^']*' (?:already in use|is currently reserved for use) by (?:running )?VMID '(\d+)'",
        "Stop the other VM: `qm shutdown {0}`, then run the command again.",
    ),
    _failure(
        "CARD_PASSED_TWICE",
        r"device '([^']*)' assigned more than once",
        "Two entries of the VM pass {0}. Remove one of them on the host: `qm set VMID --delete hostpciN`.",
    ),
    _failure(
        "CARDS_IN_USE",
        r"could not find a free device for '([^']*)'",
        "Other VMs have all cards of this mapping. Stop one of them: `qm list`.",
    ),
    _failure(
        "IOMMU_OFF",
        r"IOMMU not present",
        "Switch on VT-d (Intel) or AMD-Vi (IOMMU) in the firmware setup of the host.",
    ),
    _failure(
        "IOMMU_NO_IRQ_REMAP",
        r"[Ff]ailed to set iommu for container: Operation not permitted|[Nn]o interrupt remapping",
        "The host's IOMMU does not remap interrupts. Switch on x2APIC or interrupt remapping in its firmware"
        " setup; see `dmesg` and `provision doctor root@HOST`.",
    ),
    _failure(
        "VFIO_BIND_FAILED",
        r"can't unbind/bind PCI group to VFIO '([^']*)'|[Cc]annot bind (\S+) to vfio"
        r"|[Cc]annot open iommu_group|group \d+ is not viable",
        "A driver of the host keeps a function of the card or of its IOMMU group. See which: `lspci -nnk`,"
        " and what the kernel says: `dmesg`.",
    ),
    _failure(
        "CARD_NOT_RESET",
        r"can't reset PCI device '([^']*)'",
        "The card does not come back from its last use. Reboot the host, then run the command again.",
    ),
    _failure(
        "MACHINE_NOT_Q35",
        r"q35 machine model is not enabled",
        "Declare `machine: q35`: only this machine type has PCI Express.",
    ),
    _failure(
        "CORES_EXCEED_HOST",
        r"MAX (\d+) vcpus allowed per VM on this node",
        "Declare at most {0} cores.",
    ),
    _failure(
        "HOST_MEMORY_OVERCOMMIT",
        r"[Cc]annot allocate memory|cannot set up guest memory|unable to allocate|Out of memory",
        "Give the VMs of this host less memory, or stop some: a VM with a card takes all of its memory at its"
        " start.",
    ),
    _failure(
        "BRIDGE_MISSING",
        r"bridge '([^']*)' does not exist",
        "The host has no bridge {0}. Name one of: `ip link show type bridge`.",
    ),
    _failure(
        "STORAGE_UNAVAILABLE",
        r"storage '([^']*)' is (?:disabled|not (?:available|online|active|configured))"
        r"|storage '([^']*)' is not activated",
        "See the state of {0} on the host: `pvesm status`.",
    ),
    _failure(
        "STORAGE_MISSING",
        r"storage '([^']*)' does not exist",
        "The host has no storage {0}. Name one of: `pvesm status`.",
    ),
    _failure(
        "STORAGE_FULL",
        r"[Nn]o space left|[Nn]ot enough (?:free )?space|out of space|insufficient free space|quota exceeded",
        "Free space on the storage: `pvesm status`, or name another one.",
    ),
    _failure(
        "IMAGE_CHANGED",
        r"checksum mismatch: got '([0-9a-f]+)' != expect '[0-9a-f]+', aborting",
        "The image in the storage is not the pinned one any more (it has {0}): it was cut or replaced."
        " Remove it on the host: `pvesm free VOLUME`. Then run the command again: it is downloaded again.",
    ),
    _failure(
        "IMAGE_CHECKSUM",
        r"checksum mismatch: got '([0-9a-f]+)'",
        "What was downloaded is not the pinned image (it has {0}). Pin it again: `provision pin INVENTORY`.",
    ),
    _failure(
        "IMAGE_DOWNLOAD",
        r"download failed: ",
        "The host could not fetch the image. Try its URL there: `wget --spider URL`, or set the proxy of the"
        " datacenter.",
    ),
    _failure(
        "VMID_TAKEN_FOREIGN",
        r"unable to create VM (\d+) - VM \d+ already exists",
        "Something else has the number {0} now. Give the node another vmid.",
    ),
    _failure(
        "DISK_LEFT",
        r"disk image '[^']*/([^'/]+)' already exists|Logical [Vv]olume \"?([\w-]+)\"? already exists",
        "The volume {0} was left by an earlier VM of this number. Look at it:"
        " `pvesm list STORAGE --vmid VMID`, and remove it if nobody needs it: `pvesm free VOLUME`.",
    ),
    _failure(
        "VM_LOCKED",
        r"VM is locked(?: \(([\w-]+)\))?",
        "A task of Proxmox VE holds the lock ({0}) and frees it at its end. If no task runs any more, free it"
        " on the host: `qm unlock VMID`. Then run the command again.",
    ),
    _failure(
        "VM_TIMEOUT",
        r"powerdown failed - got timeout|start failed: .*got timeout|timeout waiting on systemd",
        "See what the VM does on its console, then run the command again.",
    ),
    _failure(
        "NO_QUORUM",
        r"no quorum",
        "The cluster has no quorum, so that nothing can be changed. See which nodes are missing:"
        " `pvecm status`, and bring them up. Then run the command again.",
    ),
    _failure(
        "HOST_UNREACHED",
        r"hostname lookup '([^']*)' failed",
        "Proxmox VE has no node {0}. Correct `node` of the hypervisor: upper and lower case differ.",
    ),
)


def classify(text: str) -> tuple[str, str]:
    """Return the code and the remedy of a failure text; both empty for one that nobody has seen."""
    for failure in FAILURES:
        match = failure.pattern.search(text)
        if match is not None:
            groups = [group for group in match.groups() if group is not None]
            return failure.code, failure.remedy.format(*(groups or ["it"]))
    return "", ""
