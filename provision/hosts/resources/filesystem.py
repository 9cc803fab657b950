"""The root filesystem: grown to the whole disk, on a plain partition or on LVM."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.query import Unknown
from provision.contracts.snapshot import Snapshot
from provision.hosts.operations import basic as ops
from provision.hosts.operations import grow as ops_grow
from provision.hosts.resources.base import HostFactKind, HostResource, Operations, Rows

_SECTOR = 512
_MIB = 1024 * 1024
_FIRST_LOGICAL = 5
_MBR_SECTORS = 2**32 - 1
"""An MBR counts sectors in 32 bits: what is behind them belongs to no partition."""
_TABLE_ROW = re.compile(r"\S+?(\d+) : start= *(\d+), size= *(\d+), type=([0-9a-f]+).*")
_TOLERANCE = 16 * _MIB
"""What alignment, the second GPT and a filesystem's last group may leave free."""

GROWABLE = ("ext2", "ext3", "ext4", "xfs", "btrfs")


@dataclass(frozen=True, slots=True)
class RootChain:
    """The devices under the root filesystem."""

    kind: ClassVar[str] = "root"


@dataclass(frozen=True, slots=True)
class RootStatus:
    """The devices under the root filesystem, and what is free at each level.

    Args:
        source: as findmnt(8) names it (`/dev/vda1`, `rpool/ROOT/pve-1`, `overlay`).
        fstype: filesystem type.
        device: block device of the filesystem; empty when it has none of its own.
        disk: disk's kernel name; empty when unknown.
        partition: partition number, 0 for none.
        volume: physical volume's device path when the root is an LVM volume.
        size: bytes of the filesystem.
        behind_partition: bytes free behind the partition.
        in_partition: bytes of the partition that the physical volume does not use.
        in_group: bytes free in the volume group.
        in_device: bytes of the device that the filesystem does not use.
        extended: number of the extended partition around the partition, which grows first; 0 for none.
    """

    source: str
    fstype: str
    device: str = ""
    disk: str = ""
    partition: int = 0
    volume: str = ""
    size: int = 0
    behind_partition: int = 0
    in_partition: int = 0
    in_group: int = 0
    in_device: int = 0
    extended: int = 0

    @property
    def supported(self) -> bool:
        """Whether it is of a kind that can be grown."""
        return bool(self.device) and self.fstype in GROWABLE

    @property
    def free(self) -> int:
        """Bytes by which the filesystem could grow; tolerances are already taken off at each level."""
        levels = (self.behind_partition, self.in_partition, self.in_group, self.in_device)
        return sum(level for level in levels if level > _TOLERANCE)


_SCRIPT = r"""full= fst=
if line=$(findmnt -nro SOURCE,FSTYPE / 2>/dev/null); then full=${line%% *} fst=${line##* }; fi
printf 'source|%s\nfstype|%s\n' "$full" "$fst"
src=${full%%\[*}
case "$full" in *'['*) case "$fst" in btrfs) ;; *) src=;; esac;; esac
if [ -n "$src" ] && [ -b "$src" ]; then
  printf 'device|%s\n' "$src"
  blocks=$(lsblk -nsrbo KNAME,TYPE,SIZE -- "$src")
  printf '%s\n' "$blocks" | while read -r k type bytes; do
    printf 'block|%s %s %s\n' "$k" "$type" "$bytes"
    c=/sys/class/block/$k
    if [ -r "$c/partition" ]; then
      read -r number <"$c/partition"; read -r start <"$c/start"; read -r size <"$c/size"
      d=$(cd -P "$c/.." && printf %s "${PWD##*/}")
      read -r whole <"/sys/class/block/$d/size"
      printf 'partition|%s|%s|%s|%s|%s|%s\n' "$k" "$number" "$start" "$size" "$d" "$whole"
      for o in /sys/class/block/"$d"/"$d"*/start; do
        if [ -r "$o" ]; then read -r other <"$o"; printf 'start|%s|%s\n' "$k" "$other"; fi
      done
      # The kernel shows an extended partition as two sectors: only the table has its size.
      sfdisk -d -- "/dev/$d" 2>/dev/null | sed -n "s/^/table|$k|/p" || :
    fi
  done
  case $blocks in *' lvm '*)
    v=$(lvs --noheadings --units b --nosuffix --separator '|' -o vg_name,vg_free -- "$src" 2>/dev/null) || v=
    if [ -n "$v" ]; then
      printf 'group|%s\n' "$v"
      pvs --noheadings --units b --nosuffix --separator '|' -o pv_name,vg_name,pv_size,dev_size 2>/dev/null |
        sed 's/^ */volume|/'
    fi;;
  esac
  case "$fst" in
    ext*) dumpe2fs -h -- "$src" 2>/dev/null |
      sed -n 's/^Block count: */blocks|/p; s/^Block size: */bsize|/p';;
    xfs) xfs_info / 2>/dev/null |
      sed -n 's/^data .*bsize=\([0-9]*\) *blocks=\([0-9]*\).*/bsize|\1\nblocks|\2/p';;
    *) stat -f -c 'bsize|%S
blocks|%b' /;;
  esac
fi
echo 'done|'"""


def _read_root(rows: Rows) -> object:
    source, fstype = rows["source"][0][0], rows["fstype"][0][0]
    if not source:
        return Unknown("findmnt knows no root filesystem")
    if "device" not in rows or fstype not in GROWABLE:
        return RootStatus(source, fstype)
    device = rows["device"][0][0]
    if "blocks" not in rows or "bsize" not in rows:
        return Unknown(f"the size of {device}'s filesystem could not be read")
    size = int(rows["blocks"][0][0]) * int(rows["bsize"][0][0])
    device_size = int(rows["block"][0][0].split()[2])
    disk, partition, extended, behind = _partition(rows)
    volume, in_partition, in_group = _volume(rows)
    in_device = max(0, device_size - size)
    return RootStatus(
        source,
        fstype,
        device,
        disk,
        partition,
        volume,
        size,
        behind,
        in_partition,
        in_group,
        in_device,
        extended,
    )


def _partition(rows: Rows) -> tuple[str, int, int, int]:
    """Return disk, number, the extended partition around it, and the bytes free behind the partition.

    Without a table of the disk, a logical partition (5 and above on an MBR disk) does not grow.
    """
    if len(rows.get("partition", ())) != 1:
        return "", 0, 0, 0  # none, or several volumes: which one to grow is not ours to guess
    name, number, start, size, disk, whole = rows["partition"][0]
    table = [row[1] for row in rows.get("table", ()) if row[0] == name]
    if not table and int(number) >= _FIRST_LOGICAL:
        return disk, int(number), 0, 0
    is_mbr = "label: dos" in table
    end = int(start) + int(size)
    limit = min(int(whole), _MBR_SECTORS) if is_mbr else int(whole)
    starts = [int(start) for partition, start in rows.get("start", ()) if partition == name]
    extended = 0
    if is_mbr and int(number) >= _FIRST_LOGICAL:
        extended, extended_end = _extended(table, end)
        if any(end <= other < extended_end for other in starts):
            extended = 0  # another logical partition is behind it
            limit = extended_end
        starts = [other for other in starts if other >= extended_end or extended == 0]
    limit = min([*(start for start in starts if start >= end), limit])
    return disk, int(number), extended, max(0, limit - end) * _SECTOR


def _extended(table: Sequence[str], end: int) -> tuple[int, int]:
    """Return number and end of the extended partition in a table of sfdisk(8) that holds a sector.

    Types 5, f and 85 are extended partitions.
    """
    for line in table:
        match = _TABLE_ROW.fullmatch(line)
        if match is not None and match[4] in ("5", "f", "85"):
            number, start, size = map(int, match.groups()[:3])
            if start < end <= start + size:
                return number, start + size
    raise ValueError("no extended partition holds the root's partition")


def _volume(rows: Rows) -> tuple[str, int, int]:
    """Return physical volume, its unused bytes and the group's free bytes."""
    if "group" not in rows:
        return "", 0, 0
    group, free = rows["group"][0]
    volumes = [volume for volume in rows.get("volume", ()) if volume[1] == group]
    if len(volumes) != 1:
        return (volumes[0][0] if volumes else ""), 0, int(free)
    path, _, size, device_size = volumes[0]
    return path, max(0, int(device_size) - int(size)), int(free)


ROOT_CHAIN_KIND = HostFactKind(RootChain, "the root filesystem", _SCRIPT, _read_root)
"""By findmnt, lsblk, sysfs, LVM's reports and the filesystem's own superblock."""


def _gib(size: int) -> str:
    return f"{size / 1024**3:.1f} GiB"


@dataclass(frozen=True, slots=True)
class RootFilesystem(HostResource):
    """The root filesystem fills its disk. What cannot be grown (ZFS, overlay) has nothing to do."""

    kind: ClassVar[str] = "root-filesystem"

    def _key_name(self) -> str:
        return "/"

    def queries(self) -> tuple[RootChain, ...]:
        """Return the one query."""
        return (RootChain(),)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return the size before and after."""
        status: RootStatus = snapshot[RootChain()]
        if not status.supported or not status.free:
            return ()
        grown = status.size + status.free
        return (Change(Op.UPDATE, "size", _gib(status.size), f"{_gib(grown)} (the whole disk)"),)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how partition, volume and filesystem grow, from the disk up."""
        status: RootStatus = snapshot[RootChain()]
        operations: list[ops.Operation] = []
        grows = status.behind_partition > _TOLERANCE
        if grows:
            operations.append(ops_grow.GrowPartition(status.disk, status.partition, status.extended))
        if status.volume and (grows or status.in_partition > _TOLERANCE or status.in_group > _TOLERANCE):
            operations.append(ops_grow.GrowVolume(status.volume, status.device))
        return [*operations, ops_grow.GrowFilesystem(status.fstype, status.device)]
