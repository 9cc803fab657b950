"""The configuration files of a host's VMs, read over SSH where no token exists yet.

Source: qm.conf(5) and pve-cluster: lines `KEY: VALUE`, `#` lines are the description with `%XX`, then the
sections `[PENDING]`, `[special:...]` and one for each snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from provision.contracts.query import Unknown
from provision.hosts.facts import HostFacts
from provision.hosts.queries.shell import Shell, ShellResult
from provision.proxmox import marker
from provision.proxmox.marker import Marker

_KEYS = (
    "name|template|cores|sockets|memory|balloon|cpu|numa|machine|bios|agent|onboot|protection|startup|tags"
    "|serial0|boot|bootdisk|cicustom|delete|(net|ipconfig|scsi|virtio|sata|ide|hostpci)[0-9]+|efidisk0|tpmstate0"
)
_END = "== end"
_HEAD = re.compile(r"== ([0-9]+)\.conf")
_LINE = re.compile(r"([a-z]+[0-9]*): ?(.*)")


_PROGRAM = (
    r'FNR == 1 { part = ""; n = split(FILENAME, path, "/"); print "== " path[n] }'
    r' /^\[/ { part = $0; if (part == "[PENDING]") print; next }'
    r' part == "" && /^#.*provision.*inventory=/ { print; next }'
    rf' (part == "" || part == "[PENDING]") && /^({_KEYS}):/ {{ print }}'
)
VM_FILES = Shell(
    'n=$(uname -n); set -- "/etc/pve/nodes/${n%%.*}/qemu-server"/*.conf;'
    f' if [ -e "$1" ]; then awk \'{_PROGRAM}\' "$@"; fi && echo "{_END}"'
)
"""The VMs of the host's own node, without snapshots, and of each description the marker alone."""
CONTAINERS = Shell('n=$(uname -n); ls "/etc/pve/nodes/${n%%.*}/lxc" 2>/dev/null || true')
"""Files of the host's containers."""
NEIGHBOURS = Shell("ip -4 neigh show")
"""Which addresses the host saw last, by MAC."""


@dataclass(frozen=True, slots=True)
class VmFile:
    """One VM's configuration file.

    Args:
        vmid: its number.
        config: values by key as they will be after the next start, without the description.
        marker: whose it is already.
    """

    vmid: int
    config: Mapping[str, str] = field(default_factory=dict)
    marker: Marker | None = None

    def value(self, key: str) -> str:
        """Return the value of a key, empty for none."""
        return self.config.get(key, "")


def guest_query(vmid: int) -> Shell:
    """Return the query for the addresses that a VM's guest agent names within 5 s."""
    return Shell(f"timeout 5 qm guest cmd {vmid} network-get-interfaces")


def read(facts: HostFacts) -> tuple[VmFile, ...] | Unknown:
    """Return the VMs of a host by their numbers; Unknown if the answer is not whole."""
    result = facts.answer_as(VM_FILES, ShellResult)
    if isinstance(result, Unknown):
        return result
    lines = result.stdout.decode(errors="replace").splitlines()
    if result.rc or not lines or lines[-1] != _END:
        return Unknown("the configuration files of the VMs were not read as a whole")
    return tuple(sorted(_vms(lines[:-1]), key=lambda file: file.vmid))


def _vms(lines: Iterable[str]) -> Iterator[VmFile]:
    vmid, own = 0, list[str]()
    for line in lines:
        head = _HEAD.fullmatch(line)
        if head is None:
            own.append(line)
            continue
        if vmid:
            yield _vm(vmid, own)
        vmid, own = int(head[1]), []
    if vmid:
        yield _vm(vmid, own)


def _vm(vmid: int, lines: Iterable[str]) -> VmFile:
    config: dict[str, str] = {}
    mark: Marker | None = None
    for line in lines:
        if line.startswith("#"):
            mark = mark or marker.read(unquote(line[1:]))
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        if match[1] == "delete":  # in [PENDING]: keys that go at the next start, `!` if by force
            for key in match[2].split(","):
                config.pop(key.strip().lstrip("!"), None)
        else:
            config[match[1]] = match[2].strip()
    return VmFile(vmid, config, mark)


def neighbours(facts: HostFacts) -> Mapping[str, str]:
    """Return addresses by upper-case MAC, as far as the host saw them; a MAC with two addresses has none."""
    addresses: dict[str, set[str]] = {}
    result = facts.answer_as(NEIGHBOURS, ShellResult)
    text = "" if isinstance(result, Unknown) else result.stdout.decode(errors="replace")
    for line in text.splitlines():
        words = line.split()
        if "lladdr" in words[:-1] and "FAILED" not in words:
            addresses.setdefault(words[words.index("lladdr") + 1].upper(), set()).add(words[0])
    return {mac: next(iter(held)) for mac, held in addresses.items() if len(held) == 1}
