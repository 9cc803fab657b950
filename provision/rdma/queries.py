"""What a host says of its RDMA ports, their addresses, and how namespaces share them.

Everything is read from sysfs; names of devices and interfaces are answers, never assumptions. The layout is
that of Linux' Documentation/ABI/stable/sysfs-class-infiniband.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import ClassVar

from provision.hosts.resources.base import HostFactKind, Rows
from provision.values.numbers import is_number

ROCE_V2 = "RoCE v2"
"""How `gid_attrs/types` calls an entry that can be routed."""
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?) Gb/sec")
_STATE = re.compile(r"[0-9]+: *(\S.*)")
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)+(?:-[0-9.]+)?")


@dataclass(frozen=True, slots=True)
class RdmaState:
    """All RDMA ports and network interfaces of a host."""

    kind: ClassVar[str] = "rdma"


@dataclass(frozen=True, slots=True)
class Gid:
    """An entry of a port's table that is not empty.

    Args:
        kind: `RoCE v2`, `IB/RoCE v1`; empty where the kernel does not say.
        netdev: interface whose address it is; empty where the kernel does not say.
        address: IPv4 where the entry maps one, else IPv6.
    """

    index: int
    kind: str
    netdev: str
    address: IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Port:
    """A port of an RDMA device.

    Args:
        device: name of the RDMA device (`mlx5_8`, `rocep1s0f0`).
        number: from 1.
        pci: the PCI function's address; empty for a software device.
        state: `ACTIVE`, `DOWN`; empty where it is not readable.
        link_layer: `Ethernet` or `InfiniBand`.
        rate: Gbit/s; None where it is not readable.
        counts_bytes: whether the port has byte counters that hold numbers.
    """

    device: str
    number: int
    pci: str = ""
    state: str = ""
    link_layer: str = ""
    rate: float | None = None
    counts_bytes: bool = False
    gids: tuple[Gid, ...] = ()

    @property
    def name(self) -> str:
        """`DEVICE port NUMBER`."""
        return f"{self.device} port {self.number}"


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface.

    Args:
        pci: the PCI function's address; empty for one without.
        port: index of the port on its function, from 0; -1 where it is not readable.
        addresses: with their prefix length (`10.0.0.1/24`).
    """

    name: str
    pci: str = ""
    port: int = -1
    mtu: int = 0
    state: str = ""
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RdmaStatus:
    """What a host says of RDMA.

    Args:
        netns: `shared` or `exclusive`; empty while the kernel's RDMA core is not loaded.
        built_in: whether the RDMA core is part of the kernel and takes options on the kernel line only.
        ofed: version of NVIDIA's driver stack, or of the NIC's module; empty for none.
        character_devices: names in /dev/infiniband.
    """

    netns: str = ""
    built_in: bool = False
    ofed: str = ""
    ports: tuple[Port, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    character_devices: tuple[str, ...] = ()


# An empty entry of the table reads as zeros, or its type as an error (EINVAL): both are skipped.
_SCRIPT = r"""v() { x=; { read -r x <"$1"; } 2>/dev/null || :; }
for d in /sys/class/infiniband/*; do
  [ -d "$d/ports" ] || continue
  n=${d##*/}
  a=; if [ -e "$d/device" ]; then a=$(readlink -f "$d/device") || a=; fi
  for p in "$d"/ports/*; do
    [ -d "$p" ] || continue
    i=${p##*/}
    v "$p/state"; s=$x; v "$p/link_layer"; l=$x; v "$p/rate"; r=$x; v "$p/counters/port_xmit_data"; c=$x
    echo "port|$n|$i|${a##*/}|$s|$l|$r|$c"
    for g in "$p"/gids/*; do
      v "$g"
      case $x in ''|0000:0000:0000:0000:0000:0000:0000:0000) continue ;; esac
      y=$x; j=${g##*/}; v "$p/gid_attrs/types/$j"; t=$x; v "$p/gid_attrs/ndevs/$j"
      echo "gid|$n|$i|$j|$t|$x|$y"
    done
  done
done
for d in /sys/class/net/*; do
  [ -e "$d/mtu" ] || continue
  a=; if [ -e "$d/device" ]; then a=$(readlink -f "$d/device") || a=; fi
  v "$d/mtu"; m=$x; v "$d/operstate"; s=$x; v "$d/dev_port"
  echo "net|${d##*/}|${a##*/}|$x|$m|$s"
done
ip -o addr show 2>/dev/null | sed -n 's/^[0-9]*: *\([^ ]*\) *inet6\{0,1\} \([^ ]*\) .*/addr|\1|\2/p' || :
m=/sys/module/ib_core
if [ -d $m ]; then
  v $m/parameters/netns_mode; y=$x
  if [ -z "$y" ] && command -v rdma >/dev/null 2>&1; then
    case $(rdma system show 2>/dev/null || :) in *'netns shared'*) y=Y ;; *'netns exclusive'*) y=N ;; esac
  fi
  b=; if [ ! -e $m/initstate ]; then b=yes; fi
  echo "core|$y|$b"
fi
if command -v ofed_info >/dev/null 2>&1; then echo "ofed|$(ofed_info -s 2>/dev/null | head -n 1)"; fi
v /sys/module/mlx5_core/version; if [ -n "$x" ]; then echo "module|$x"; fi
for f in /dev/infiniband/*; do if [ -e "$f" ]; then echo "char|${f##*/}"; fi; done
echo 'done|'"""


def _read(rows: Rows) -> RdmaStatus:
    """Read everything; what is not understood in one line spoils no other."""
    gids: dict[tuple[str, str], list[Gid]] = {}
    for row in rows.get("gid", ()):
        gid = _gid(row)
        if gid is not None:
            gids.setdefault((row[0], row[1]), []).append(gid)
    addresses: dict[str, list[str]] = {}
    for row in rows.get("addr", ()):
        if len(row) == 2:  # noqa: PLR2004 - interface, address
            addresses.setdefault(row[0].partition("@")[0], []).append(row[1])
    core = rows["core"][0] if rows.get("core") else ["", ""]
    ports = (_port(row, gids) for row in rows.get("port", ()))
    interfaces = (_interface(row, addresses) for row in rows.get("net", ()))
    return RdmaStatus(
        netns={"Y": "shared", "1": "shared", "N": "exclusive", "0": "exclusive"}.get(core[0], ""),
        built_in=core[1:2] == ["yes"],
        ofed=_ofed(rows),
        ports=tuple(port for port in ports if port is not None),
        interfaces=tuple(interface for interface in interfaces if interface is not None),
        character_devices=tuple(sorted(row[0] for row in rows.get("char", ()) if row)),
    )


def gid_address(text: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a GID stands for; None for an empty or unreadable one."""
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        if address.is_unspecified:
            return None
        return address.ipv4_mapped or address
    return address


def _gid(row: Sequence[str]) -> Gid | None:
    if len(row) != 6 or not is_number(row[2]):  # noqa: PLR2004 - the fields of the script
        return None
    address = gid_address(row[5])
    return Gid(int(row[2]), row[3], row[4], address) if address is not None else None


def _port(row: Sequence[str], gids: dict[tuple[str, str], list[Gid]]) -> Port | None:
    if len(row) != 7 or not is_number(row[1]):  # noqa: PLR2004 - the fields of the script
        return None
    device, number, pci, state, layer, rate, counter = row
    named, speed = _STATE.fullmatch(state), _RATE.match(rate)
    return Port(
        device,
        int(number),
        pci if ":" in pci else "",
        named[1] if named is not None else "",
        layer,
        float(speed[1]) if speed is not None else None,
        is_number(counter),
        tuple(sorted(gids.get((device, number), ()), key=lambda gid: gid.index)),
    )


def _interface(row: Sequence[str], addresses: dict[str, list[str]]) -> Interface | None:
    if len(row) != 5:  # noqa: PLR2004 - the fields of the script
        return None
    name, pci, port, mtu, state = row
    # The kernel writes dev_port in decimal.
    return Interface(
        name,
        pci if ":" in pci else "",
        int(port) if is_number(port) else -1,
        int(mtu) if is_number(mtu) else 0,
        state,
        tuple(addresses.get(name, ())),
    )


def _ofed(rows: Rows) -> str:
    for tag in ("ofed", "module"):
        for row in rows.get(tag, ()):
            match = _VERSION.search("|".join(row))
            if match is not None:
                return match[0]
    return ""


RDMA_STATE_KIND = HostFactKind(RdmaState, "RDMA ports", _SCRIPT, _read)
HOST_KINDS = {RdmaState.kind: RDMA_STATE_KIND}
