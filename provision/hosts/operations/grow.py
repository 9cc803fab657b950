"""Operations of fixes that grow the root filesystem, from the partition up; see `ops`."""

from __future__ import annotations

from dataclasses import dataclass

from provision.hosts.operations.basic import quote

_SETTLE = "if command -v udevadm >/dev/null 2>&1; then udevadm settle --timeout=30 || :; fi"


@dataclass(frozen=True, slots=True)
class GrowPartition:
    """Grow a partition to the end of the free space behind it.

    Args:
        disk: device name without /dev.
        number: partition number.
        extended: number of the extended partition around it, which grows first; 0 for none.
    """

    disk: str
    number: int
    extended: int = 0

    def shell(self) -> str:
        """Return it as a POSIX fragment; growpart of cloud-utils ends with 1 when nothing was to do."""
        disk = quote(f"/dev/{self.disk}")
        if self.extended:  # growpart knows no extended partitions; the kernel shows them without their size
            return "\n".join(
                (
                    f"printf ', +\\n' | sfdisk --no-reread --force -N {self.extended} {disk}",
                    f"printf ', +\\n' | sfdisk --no-reread --force -N {self.number} {disk}",
                    f"partx -u --nr {self.number} {disk}",
                    _SETTLE,
                )
            )
        return "\n".join(
            (
                "if command -v growpart >/dev/null 2>&1; then",
                f"  rc=0; out=$(growpart {disk} {self.number} 2>&1) || rc=$?",
                "  printf '%s\\n' \"$out\"",
                '  case "$rc:$out" in 0:*|*NOCHANGE*) ;; *) exit "$rc";; esac',
                "else",
                f"  printf ', +\\n' | sfdisk --no-reread --force -N {self.number} {disk}",
                f"  partx -u --nr {self.number} {disk}",
                "fi",
                _SETTLE,
            )
        )


@dataclass(frozen=True, slots=True)
class GrowVolume:
    """Grow an LVM physical volume to its partition, and the root's volume to all that is free.

    Args:
        pv: device path of the physical volume.
        lv: device path of the logical volume.
    """

    pv: str
    lv: str

    def shell(self) -> str:
        """Return it as a POSIX fragment; lvextend fails when nothing is free, so that is asked."""
        lv = quote(self.lv)
        return "\n".join(
            (
                f"pvresize -- {quote(self.pv)}",
                f"free=$(lvs --noheadings -o vg_free_count -- {lv})",
                f'if [ "$((free))" -gt 0 ]; then lvextend -l +100%FREE -- {lv}; fi',
            )
        )


@dataclass(frozen=True, slots=True)
class GrowFilesystem:
    """Grow the mounted root filesystem to its device.

    Args:
        fstype: ext2, ext3, ext4, xfs or btrfs.
        device: device path.
    """

    fstype: str
    device: str

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        if self.fstype == "xfs":
            return "xfs_growfs /"
        if self.fstype == "btrfs":
            return "btrfs filesystem resize max /"
        return f"resize2fs {quote(self.device)}"
