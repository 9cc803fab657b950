"""What a reboot of a Proxmox VE host would cost: its cluster, its guests, and its network.

Sources: pve-cluster, `PVE/Cluster.pm` (`/etc/pve/.members`) and corosync.conf(5) (`quorum_votes`, `device`);
pve-ha-manager, `PVE/HA/Config.pm` (`manager_status`); systemd.link(5); interfaces(5) and ifupdown2;
pve-manager, `bin/pve-network-interface-pinning` and `pvenetcommit.service`, which moves `interfaces.new` to
`interfaces` at boot.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from provision.hosts.queries.shell import Shell
from provision.values.numbers import is_number

REBOOT_FACTS = Shell(
    r"""part() { for f; do [ ! -r "$f" ] || { printf '== %s\n' "$f"; cat -- "$f"; echo; }; done; }
part /etc/pve/.members /etc/pve/ha/manager_status
k='iface|bridge[-_]ports|ovs_(ports|bonds)|bond[-_](slaves|master)|slaves'
for f in /etc/network/interfaces.new /etc/network/interfaces /etc/network/interfaces.d/*; do
  [ ! -r "$f" ] || { printf '== %s\n' "$f"
  grep -E "^[[:space:]]*($k)[[:space:]]" "$f" || :; }
done
part /etc/systemd/network/*.link /run/systemd/network/*.link /usr/local/lib/systemd/network/*.link
echo '== nics'
for d in /sys/class/net/*/device; do
  n=${d%/device}; a=$n/bonding_slave/perm_hwaddr; [ -r "$a" ] || a=$n/address
  [ ! -e "$d" ] || echo "${n##*/} $(cat "$a")"
done
echo '== guests'
for f in /run/qemu-server/*.pid; do
  n=${f##*/}; [ ! -e "$f" ] || [ ! -d "/proc/$(cat "$f")" ] || echo "VM ${n%.pid}"
done
for d in /sys/fs/cgroup/lxc/[0-9]*; do [ ! -d "$d" ] || echo "container ${d##*/}"; done
echo '== votes'
grep -sE '^[[:space:]]*(device[[:space:]]*\{|quorum_votes:)' /etc/pve/corosync.conf || :
echo '== end'"""
)
"""Parts with a head `== NAME` each. Of the network's configuration, only names leave the host."""

_LISTS = re.compile(r"\s*(?:bridge[-_]ports|ovs_(?:ports|bonds)|bond[-_]slaves|slaves)\s+(.*)")
_MASTER = re.compile(r"\s*bond[-_]master\s+(\S+)\s*")


@dataclass(frozen=True, slots=True)
class RebootFacts:
    """What a reboot of a host would cost.

    Args:
        nodes: how many nodes its cluster has; 0 for a host without one.
        online: how many of them are there.
        is_quorate: whether its cluster has quorum.
        votes: how many votes there are, with that of a quorum device.
        ha: HA resources (`vm:101`) by the node that they run on.
        guests: running guests, `VM 101` or `container 201`.
        ports: names of interfaces by the bridge or bond that has them, as the next boot configures it.
        pending: whether the network's configuration changes with the next boot.
        nics: MAC by name of each physical interface; its own one where a bond has given it another.
        renamed: name that a file of systemd.link(5) gives at the next boot, by present name.
    """

    nodes: int = 0
    online: int = 0
    is_quorate: bool = True
    votes: int = 0
    ha: Mapping[str, str] = field(default_factory=dict)
    guests: tuple[str, ...] = ()
    ports: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pending: bool = False
    nics: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)

    @property
    def keeps_quorum(self) -> bool:
        """Whether the rest of the cluster has quorum while this host is away; its vote counts once."""
        lost = self.nodes - self.online
        return not self.nodes or self.votes - lost - 1 > self.votes // 2

    @property
    def lost_ports(self) -> tuple[str, ...]:
        """Ports that no interface has the name of after the boot, with the reason."""
        return tuple(
            f"{port} of {bridge} is {self.renamed[port]} after the next boot"
            for bridge, ports in self.ports.items()
            for port in dict.fromkeys(name.partition(".")[0] for name in ports)
            if self.renamed.get(port, port) != port
        )


def reboot_facts(text: str) -> RebootFacts | None:
    """Return what an answer to REBOOT_FACTS says, None where it is not whole."""
    parts = dict(_parts(text))
    if "end" not in parts:
        return None
    members = _object("\n".join(parts.get("/etc/pve/.members", ())))
    cluster = members.get("cluster")
    cluster = cluster if isinstance(cluster, Mapping) else {}
    listed = members.get("nodelist")
    online = [
        node
        for node in (listed.values() if isinstance(listed, Mapping) else ())
        if isinstance(node, Mapping) and node.get("online")
    ]
    nodes = _number(cluster.get("nodes"))
    manager = _object("\n".join(parts.get("/etc/pve/ha/manager_status", ())))
    services = manager.get("service_status")
    rows = [line.split() for line in parts.get("nics", ())]
    nics = {row[0]: row[1].lower() for row in rows if len(row) == 2}  # noqa: PLR2004 - name, MAC
    links = [lines for name, lines in sorted(parts.items(), key=_file_name) if name.endswith(".link")]
    return RebootFacts(
        nodes,
        len(online),
        not cluster or bool(_number(cluster.get("quorate"))),
        _votes(nodes, parts.get("votes", ())),
        {
            str(name): str(state.get("node"))
            for name, state in (services.items() if isinstance(services, Mapping) else ())
            if isinstance(state, Mapping) and state.get("state") not in ("ignored", "stopped", "disabled")
        },
        tuple(line for line in parts.get("guests", ()) if line),
        _ports(parts),
        "/etc/network/interfaces.new" in parts,
        nics,
        {name: new for name, mac in nics.items() if (new := _pinned(mac, links))},
    )


def _parts(text: str) -> Iterator[tuple[str, list[str]]]:
    for part in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        name, *lines = part.rstrip("\n").split("\n")
        yield name, lines


def _file_name(part: tuple[str, list[str]]) -> str:
    """Return what link files are ordered by: the name, whatever the folder."""
    return part[0].rpartition("/")[2]


def _object(text: str) -> Mapping[str, object]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | str) and is_number(str(value)) else 0


def _votes(nodes: int, lines: Sequence[str]) -> int:
    """Return all votes: those of the nodes, and of a quorum device, which has one where nodes have one."""
    own = [_number(line.partition(":")[2].strip()) for line in lines if "quorum_votes" in line]
    device = any("device" in line for line in lines)
    return (sum(own) if len(own) == nodes else nodes) + device


def _ports(parts: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return the ports of bridges and bonds as the next boot configures them."""
    main = "/etc/network/interfaces"
    chosen = f"{main}.new" if f"{main}.new" in parts else main
    files = [chosen, *(name for name in parts if name.startswith(f"{main}.d/"))]
    ports: dict[str, tuple[str, ...]] = {}
    for file in files:
        interface = ""
        for line in parts.get(file, ()):
            words = line.split()
            if words and words[0] == "iface":
                interface = words[1] if len(words) > 1 else ""
            elif (match := _LISTS.fullmatch(line)) is not None:
                ports[interface] = tuple(name for name in match[1].split() if name != "none")
            elif (match := _MASTER.fullmatch(line)) is not None:
                ports[match[1]] = (*ports.get(match[1], ()), interface)
    return ports


def _pinned(mac: str, links: Sequence[Sequence[str]]) -> str:
    """Return the name that the first file with this MAC gives; other files cannot be judged from here."""
    for lines in links:
        values: dict[str, str] = {}
        for line in lines:
            key, separator, value = line.partition("=")
            if separator and not key.lstrip().startswith(("#", ";")):
                values[key.strip()] = value.strip()
        macs = f"{values.get('MACAddress', '')} {values.get('PermanentMACAddress', '')}".lower().split()
        if mac in macs:
            return values.get("Name", "")
    return ""
