"""What the host itself uses a network card for: the rules about passing one look at it.

Sources: sysfs (`/sys/class/net/*/device`, `upper_*`, `/sys/bus/pci/devices/*/physfn`), ip(8), ovs-vsctl(8),
corosync.conf(5) (`ring0_addr`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from provision.hosts.queries.shell import Shell

HOST_NICS = Shell(
    r"""command -v ip >/dev/null 2>&1 || exit 1
for n in /sys/class/net/*; do
  [ -e "$n" ] || continue
  if [ -d "$n/device" ]; then (cd -P "$n/device" && echo "nic ${n##*/} $PWD") || :; fi
  for u in "$n"/upper_*; do [ ! -e "$u" ] || echo "upper ${n##*/} ${u##*/upper_}"; done
done
if command -v ovs-vsctl >/dev/null 2>&1; then
  for b in $(ovs-vsctl --timeout=5 list-br 2>/dev/null); do
    for p in $(ovs-vsctl --timeout=5 list-ifaces "$b" 2>/dev/null); do echo "upper $p $b"; done
  done
fi
for f in /sys/bus/pci/devices/*/physfn; do
  [ ! -e "$f" ] || (d=${f%/physfn}; cd -P "$f" && echo "virtual ${d##*/} ${PWD##*/}") || :
done
ip -o addr show scope global 2>/dev/null | sed 's/^[0-9]*: /address /'
for f in -4 -6; do ip $f route show default 2>/dev/null; done | sed -n 's/.* dev \([^ ]*\).*/default \1/p'
c=${SSH_CONNECTION%% *}
if [ -n "$c" ]; then ip -o route get "$c" 2>/dev/null | sed -n 's/.* dev \([^ ]*\).*/controller \1/p'; fi
sed -n 's/^[[:space:]]*ring[0-9]*_addr:[[:space:]]*/corosync /p' /etc/pve/corosync.conf 2>/dev/null || :
echo end"""
)
"""One fact a line; the last one says that all were read."""

_PCI = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")


@dataclass(frozen=True, slots=True)
class HostNics:
    """The host's network, as far as it bears on its cards.

    Args:
        functions: PCI function by interface.
        uppers: what is made from an interface (bridge, bond, VLAN), by interface.
        physical: physical function by virtual function.
        addresses: addresses with prefix length, by interface.
        routes: `the default route` or `the way to this controller`, by interface.
        corosync: addresses of corosync's links.
    """

    functions: Mapping[str, str] = field(default_factory=dict)
    uppers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    physical: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    routes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    corosync: frozenset[str] = frozenset()

    def interfaces(self, functions: Iterable[str]) -> tuple[str, ...]:
        """Return the interfaces of PCI functions."""
        wanted = set(functions)
        return tuple(name for name, function in self.functions.items() if function in wanted)

    def uses(self, functions: Iterable[str], ports: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
        """Return what the host uses PCI functions for.

        Args:
            functions: full addresses.
            ports: interfaces by the bridge or bond that has them, as the next boot configures it.
        """
        wanted = set(functions)
        names = self.interfaces(wanted)
        found = [row for name in names for row in self._of_interface(name, set())]
        found += [
            f"{port} is a port of {bridge} in /etc/network/interfaces"
            for bridge, of_bridge in ports.items()
            for port in of_bridge
            if port.partition(".")[0] in names and bridge not in self.uppers.get(port, ())
        ]
        children = [child for child, parent in self.physical.items() if parent in wanted - {child}]
        found += [f"virtual function {child} is passed with it" for child in children if child not in wanted]
        return tuple(dict.fromkeys(found))

    def _of_interface(self, name: str, visited: set[str]) -> Iterator[str]:
        visited.add(name)
        for address in self.addresses.get(name, ()):
            is_link = address.partition("/")[0] in self.corosync
            yield f"{name} has {address}{', a link of corosync' if is_link else ''}"
        yield from (f"{name} has {route}" for route in self.routes.get(name, ()))
        for upper in self.uppers.get(name, ()):
            yield f"{name} is a part of {upper}"
            if upper not in visited:
                yield from self._of_interface(upper, visited)


def host_nics(text: str) -> HostNics | None:
    """Return what an answer to HOST_NICS says, None where it is not whole."""
    lines = text.splitlines()
    if lines[-1:] != ["end"]:
        return None
    rows = [line.split() for line in lines]

    def pairs(kind: str) -> Iterator[tuple[str, str]]:
        return ((row[1], row[2]) for row in rows if row[0:1] == [kind] and len(row) > 2)  # noqa: PLR2004 - kind, two names

    functions = {name: found[-1] for name, path in pairs("nic") if (found := _PCI.findall(path))}
    ways = {"default": "the default route", "controller": "the way to this controller"}
    routes = [(row[1], ways[row[0]]) for row in rows if row[0:1] and row[0] in ways and len(row) > 1]
    # ip(8): `address eno1    inet 10.0.0.5/24 ...`
    addresses = [(row[1], row[3]) for row in rows if row[0:1] == ["address"] and len(row) > 3]  # noqa: PLR2004 - as above
    return HostNics(
        functions,
        _grouped(pairs("upper")),
        dict(pairs("virtual")),
        _grouped(addresses),
        _grouped(routes),
        frozenset(row[1] for row in rows if row[0:1] == ["corosync"] and len(row) > 1),
    )


def _grouped(rows: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    grouped: dict[str, tuple[str, ...]] = {}
    for key, value in rows:
        if value not in grouped.get(key, ()):
            grouped[key] = (*grouped.get(key, ()), value)
    return grouped
