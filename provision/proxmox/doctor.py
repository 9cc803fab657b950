"""What `provision doctor` looks for on a Proxmox VE host.

Sources: columns of `pvesm status` (pve-storage, `PVE/CLI/pvesm.pm`), `Quorate:` of `pvecm status`,
`status:` of `pvesubscription get`.
"""

from __future__ import annotations

from provision.hosts.doctor import HostRule
from provision.values.diagnostics import Severity

_ON_PVE = "command -v pveversion >/dev/null 2>&1 || exit 0; "
_REPOSITORIES = """pvesubscription get 2>/dev/null | grep -qiE '^status: *active' && exit 0
for f in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
  grep -sH '^[^#]*enterprise\\.proxmox\\.com' "$f"
done
for f in /etc/apt/sources.list.d/*.sources; do
  grep -qsiE '^Enabled: *(no|false|0|off)' "$f" || grep -sH '^[^#]*enterprise\\.proxmox\\.com' "$f"
done"""
_NO_REMAPPING = """[ -n "$(ls /sys/kernel/iommu_groups 2>/dev/null)" ] || exit 0
log=$(journalctl -k -b -o cat 2>/dev/null | grep -E 'DMAR|AMD-Vi') || exit 0
case $log in *"IRQ remapping"*|*"nterrupt remapping enabled"*) exit 0;; esac
printf '%s\\n' "$log" | tail -n 5"""

RULES = (
    HostRule(
        "PVE_VERSION_UNSUPPORTED",
        "its Proxmox VE is older than 8",
        "upgrade it: https://pve.proxmox.com/wiki/Upgrade_from_7_to_8",
        _ON_PVE + "pveversion | awk -F/ '{ split($2, v, \".\"); if (v[1] + 0 > 0 && v[1] + 0 < 8) print }'",
        Severity.ERROR,
    ),
    HostRule(
        "PVE_QUORUM_LOST",
        "its cluster has no quorum, so that no VM can be changed",
        "bring the other nodes back (`pvecm status`)",
        _ON_PVE + "pvecm status 2>/dev/null | grep -E '^Quorate: +No'",
        Severity.ERROR,
    ),
    HostRule(
        "PVE_STORAGE_FULL",
        "a storage is full",
        "remove volumes that nothing uses: `pvesm list STORAGE`",
        _ON_PVE + 'pvesm status 2>/dev/null | awk \'NR > 1 && $3 == "active" && $7+0 >= 97'
        ' { print $1 " is " $7 " full, of " int($4 / 1048576) " GiB" }\'',
        Severity.ERROR,
    ),
    HostRule(
        "PVE_STORAGE_INACTIVE",
        "a storage that is enabled is not active",
        "find out why, or disable it: `pvesm set STORAGE --disable 1`",
        _ON_PVE + "pvesm status 2>/dev/null | awk 'NR > 1 && $3 == \"inactive\" { print $1, $2, $3 }'",
    ),
    HostRule(
        "PVE_REPO_UNSUBSCRIBED",
        "it has the enterprise repository and no subscription, so that its package lists fail",
        "declare `repositories: no_subscription` of the hypervisor, or change it by hand (web interface:"
        " Updates, Repositories)",
        _ON_PVE + _REPOSITORIES,
    ),
    HostRule(
        "PVE_VM_LOCKED",
        "a VM is locked",
        "wait until its task ends; if there is none (`pvesh get /cluster/tasks`): `qm unlock VMID`",
        _ON_PVE + "grep -sH '^lock:' /etc/pve/qemu-server/*.conf",
    ),
    HostRule(
        "IOMMU_NO_GROUPS",
        "no IOMMU is active, so that no card can be passed to a VM",
        "switch on VT-d or AMD-Vi in the firmware setup; declare the cards, and apply sets `intel_iommu=on`",
        _ON_PVE + '[ -d /sys/kernel/iommu_groups ] && [ -z "$(ls /sys/kernel/iommu_groups)" ] || exit 0;'
        ' echo "/proc/cmdline: $(cat /proc/cmdline)";'
        " ls /sys/firmware/acpi/tables 2>/dev/null | grep -E '^(DMAR|IVRS)$'"
        " || echo 'no ACPI table DMAR or IVRS'",
    ),
    HostRule(
        "IOMMU_NO_IRQ_REMAP",
        "its IOMMU does not remap interrupts, so that vfio refuses cards",
        "switch on x2APIC or interrupt remapping in the firmware setup, and update the firmware",
        _ON_PVE + _NO_REMAPPING,
    ),
)
