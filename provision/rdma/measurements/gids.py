"""Tables of GIDs: of `show_gids`, and of the shell text that reads the same from sysfs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from provision.contracts.query import Unknown
from provision.values.numbers import is_number

SCRIPT = (
    "for g in /sys/class/infiniband/*/ports/*/gids/*; do\n"
    '  read -r x <"$g" || continue\n'
    "  case $x in 0000:0000:0000:0000:0000:0000:0000:0000) continue ;; esac\n"
    "  i=${g##*/}; p=${g%/gids/*}; d=${p%/ports/*}; t=; n=\n"
    '  read -r t <"$p/gid_attrs/types/$i" || :\n'
    '  read -r n <"$p/gid_attrs/ndevs/$i" || :\n'
    '  echo "gid|${d##*/}|${p##*/}|$i|$x|$t|$n"\n'
    "done 2>/dev/null\n"
    "echo 'gids|end'"
)
"""Prints every entry that is not empty. An entry whose interface is in another namespace has no `ndev`."""
_VERSIONS = {"v1": "v1", "v2": "v2", "IB/RoCE v1": "v1", "RoCE v2": "v2"}
_GID = re.compile(r"(?:[0-9a-f]{4}:){7}[0-9a-f]{4}")
_SHOWN = re.compile(
    r"(\S+)\t(\d+)\t(\d+)\t([0-9a-f:]{39})\t+(?:[0-9.]+ *\t+)?(v1|v2)(?:\t(\S+))?[ \t]*"
    r"|(\S+) +(\d+) +(\d+) +([0-9a-f:]{39}) +(?:[0-9.]+ +)?(v1|v2)(?: +(\S+))? *"
)


@dataclass(frozen=True, slots=True)
class GidEntry:
    """An entry of a port's table.

    Args:
        device: RDMA device.
        version: `v1` or `v2`; empty where the kernel does not say.
        netdev: its interface; empty where this namespace does not see it.
    """

    device: str
    port: int
    index: int
    address: IPv4Address | IPv6Address
    version: str
    netdev: str


def parse_gids(text: str) -> tuple[GidEntry, ...] | Unknown:
    """Return the entries that SCRIPT printed; Unknown where its end is missing or a row is damaged."""
    entries: list[GidEntry] = []
    rows = [line.split("|") for line in text.splitlines() if line.startswith(("gid|", "gids|"))]
    if not rows or rows[-1] != ["gids", "end"]:
        return Unknown("the table of GIDs has no end")
    for row in rows[:-1]:
        entry = _entry(*row[1:]) if len(row) == 7 else None  # noqa: PLR2004 - the fields of SCRIPT
        if entry is None:
            return Unknown(f"a row of the table of GIDs is not whole: {'|'.join(row)[:80]}")
        entries.append(entry)
    return tuple(entries)


def parse_show_gids(text: str) -> tuple[GidEntry, ...] | Unknown:
    """Return the entries that `show_gids` printed; Unknown where its last line (`n_gids_found=`) differs."""
    entries: list[GidEntry] = []
    for line in text.splitlines():
        match = _SHOWN.fullmatch(line)
        if match is not None:
            device, port, index, gid, version, netdev = (part for part in _halves(match))
            entry = _entry(device, port, index, gid, version, netdev)
            if entry is not None:
                entries.append(entry)
    total = re.search(r"(?m)^n_gids_found=([0-9]{1,9})\s*$", text)
    if total is None:
        return Unknown("show_gids has no end")
    if int(total[1]) != len(entries):
        return Unknown(f"show_gids lists {len(entries)} entries and counts {total[1]}")
    return tuple(entries)


def own_entry(entries: tuple[GidEntry, ...], device: str, port: int, address: IPv4Address) -> GidEntry | None:
    """Return the RoCE v2 entry of an address on a port; its index differs from pod to pod."""
    for entry in entries:
        if (entry.device, entry.port, entry.version, entry.address) == (device, port, "v2", address):
            return entry
    return None


def _halves(match: re.Match[str]) -> tuple[str, ...]:
    groups = match.groups(default="")
    return groups[:6] if groups[0] else groups[6:]


def _entry(device: str, port: str, index: str, gid: str, version: str, netdev: str) -> GidEntry | None:
    if not (is_number(port) and is_number(index) and device and _GID.fullmatch(gid)):
        return None
    address = IPv6Address(gid)
    own = _VERSIONS.get(version, "")
    return GidEntry(device, int(port), int(index), address.ipv4_mapped or address, own, netdev)
