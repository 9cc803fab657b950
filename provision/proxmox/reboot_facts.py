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
from provision.proxmox.link_files import Naming, Nic, naming_of
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
  [ -e "$d" ] || continue
  echo "${n##*/} $(cat "$a")"
  u=/run/udev/data/n$(cat "$n/ifindex" 2>/dev/null); [ -r "$u" ] || continue
  sed -nE "s/^E:(ID_PATH|ID_NET_DRIVER|ID_NET_NAME_[A-Z_]*)=/${n##*/} &/p" "$u"
done
echo '== kernels'
echo "running $(cat /proc/sys/kernel/osrelease)"
for f in /boot/vmlinuz-*; do [ ! -e "$f" ] || echo "${f##*/vmlinuz-}"; done
echo '== naming'
tr ' ' '\n' </proc/cmdline | grep -E '^(net\.ifnames|net\.naming-scheme)=' || :
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
        lost_names: interface by alternative name that such a file takes from it.
        unpinned: interfaces whose names follow from their place in the machine, and that no file names.
        next_kernel: release of the newest kernel, if it is not the running one.
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
    lost_names: Mapping[str, str] = field(default_factory=dict)
    unpinned: frozenset[str] = frozenset()
    next_kernel: str = ""

    @property
    def keeps_quorum(self) -> bool:
        """Whether the rest of the cluster has quorum while this host is away; its vote counts once."""
        lost = self.nodes - self.online
        return not self.nodes or self.votes - lost - 1 > self.votes // 2

    @property
    def lost_ports(self) -> tuple[str, ...]:
        """Ports that no interface has the name of after the boot, with the reason."""
        lost: list[str] = []
        for bridge, port in self._interfaces():
            if self.renamed.get(port, port) != port:
                lost.append(f"{port} of {bridge} is {self.renamed[port]} after the next boot")
            elif port in self.lost_names:
                other = self.lost_names[port]
                lost.append(
                    f"{port} of {bridge} is an alternative name of {other}, and is gone after the next boot"
                )
        return tuple(lost)

    @property
    def unpinned_ports(self) -> tuple[str, ...]:
        """Ports whose names another kernel or card may change, with their bridge."""
        return tuple(f"{port} of {bridge}" for bridge, port in self._interfaces() if port in self.unpinned)

    def _interfaces(self) -> list[tuple[str, str]]:
        """Return each bridge or bond with each interface that it names, of a VLAN the one below it."""
        return [
            (bridge, port)
            for bridge, ports in self.ports.items()
            for port in dict.fromkeys(name.partition(".")[0] for name in ports)
        ]


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
    nics = _nics(parts.get("nics", ()))
    links = [lines for name, lines in sorted(parts.items(), key=_file_name) if name.endswith(".link")]
    policies = "net.ifnames=0" not in parts.get("naming", ())
    namings = {name: naming_of(nic, links, policies=policies) for name, nic in nics.items()}
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
        {name: nic.mac for name, nic in nics.items()},
        {name: new for name, nic in nics.items() if (new := _next_name(name, nic, namings[name]))},
        dict(_lost_names(nics, namings)),
        frozenset(name for name, nic in nics.items() if namings[name] is None and name in nic.by_place),
        _next_kernel([line for line in parts.get("kernels", ()) if line]),
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


def _nics(lines: Sequence[str]) -> dict[str, Nic]:
    """Read `eno1 MAC`, and properties of udev's database (`eno1 E:ID_NET_NAME_PATH=enp1s0`)."""
    macs: dict[str, str] = {}
    properties: dict[str, dict[str, str]] = {}
    for line in lines:
        name, _, value = line.partition(" ")
        key, is_property, text = value.removeprefix("E:").partition("=")
        if is_property:
            properties.setdefault(name, {})[key] = text
        elif name and value and " " not in value:
            macs[name] = value.lower()
    return {name: Nic(mac, properties.get(name, {})) for name, mac in macs.items()}


def _next_name(name: str, nic: Nic, naming: Naming | None) -> str:
    """Return the name that a file gives, or empty; a file without one leaves the kernel's."""
    if naming is None or naming.name:
        return naming.name if naming is not None else ""
    return "named by the kernel (eth0)" if name in nic.predictable else ""


def _lost_names(nics: Mapping[str, Nic], namings: Mapping[str, Naming | None]) -> Iterator[tuple[str, str]]:
    """Yield alternative names that a file, which replaces the default one, does not give any more."""
    for name, naming in namings.items():
        if naming is not None:
            for other in nics[name].predictable - naming.others - {naming.name, *nics}:
                yield other, name


def _next_kernel(releases: Sequence[str]) -> str:
    """Return the newest of the installed releases if it is newer than the running one."""
    running = next((line.removeprefix("running ") for line in releases if line.startswith("running ")), "")
    newest = max((line for line in releases if " " not in line), key=_release, default="")
    return newest if running and _release(newest) > _release(running) else ""


def _release(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if is_number(part) else (0, part) for part in re.split(r"[.-]", text)]
