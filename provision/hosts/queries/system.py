"""Queries about the system as a whole: clock, host keys, bridges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.query import Unknown
from provision.hosts.resources.base import HostFactKind, Rows


@dataclass(frozen=True, slots=True)
class ClockState:
    """Whether the clock is synchronised."""

    kind: ClassVar[str] = "clock"


@dataclass(frozen=True, slots=True)
class ClockStatus:
    """State of the clock.

    Args:
        synchronised: the kernel's clock is disciplined by a time server.
        container: the name of the container technology; its clock is the machine's, and empty means none.
    """

    synchronised: bool
    container: str = ""


# systemd leaves the container's name in /run/systemd/container. The time daemon knows first; timedatectl(1)
# reads the kernel's flag, whoever sets it, and comes last: it starts a daemon over D-Bus, which takes seconds
# on a slow machine.
_CLOCK_SCRIPT = """v= s=
if [ -r /run/systemd/container ]; then read -r v </run/systemd/container || :; fi
if command -v chronyc >/dev/null 2>&1; then
  case $(chronyc -c tracking 2>/dev/null) in
    '') ;; *'Not synchronised') s=no;; *) s=yes;;
  esac
fi
if [ -z "$s" ] && [ -e /run/systemd/timesync/synchronized ]; then s=yes; fi
if [ -z "$s" ]; then s=$(timedatectl show -p NTPSynchronized --value 2>/dev/null) || s=; fi
printf 'clock|%s|%s\\ndone|\\n' "$s" "$v"
"""


def _read_clock(rows: Rows) -> object:
    synchronised, container = rows["clock"][0]
    if synchronised not in ("yes", "no"):
        return Unknown("no time daemon answered")
    return ClockStatus(synchronised == "yes", container)


CLOCK_STATE_KIND = HostFactKind(ClockState, "the clock", _CLOCK_SCRIPT, _read_clock)


@dataclass(frozen=True, slots=True)
class HostKeys:
    """The SSH host keys: public keys by file, as a tuple of (path of the private key, `TYPE BASE64`)."""

    kind: ClassVar[str] = "host-keys"


_KEYS_SCRIPT = """for f in /etc/ssh/ssh_host_*_key; do
  if [ -e "$f" ]; then
    k=; if [ -r "$f.pub" ]; then read -r k <"$f.pub" || :; fi
    printf 'key|%s|%s\\n' "$f" "$k"
  fi
done
echo 'done|'"""


def _read_keys(rows: Rows) -> tuple[tuple[str, str], ...]:
    return tuple((path, " ".join(key.split()[:2])) for path, key in rows.get("key", ()))


HOST_KEYS_KIND = HostFactKind(HostKeys, "host keys", _KEYS_SCRIPT, _read_keys)
"""The public key files of /etc/ssh, without their comments."""


@dataclass(frozen=True, slots=True)
class Bridges:
    """The names of the network bridges."""

    kind: ClassVar[str] = "bridges"


# Open vSwitch's bridges have no folder `bridge` in sysfs. Proxmox's firewall makes a bridge for each device
# that it protects (fwbr102i0), and Docker one for each of its networks: no VM is connected to these.
_BRIDGES_SCRIPT = """{ for b in /sys/class/net/*; do
  if [ -d "$b/bridge" ]; then echo "${b##*/}"; fi
done
if command -v ovs-vsctl >/dev/null 2>&1; then ovs-vsctl --timeout=5 list-br 2>/dev/null || :; fi
} | while IFS= read -r n; do
  case $n in fwbr*|docker[0-9]*|br-????????????) ;; *) printf 'bridge|%s\\n' "$n";; esac
done
echo 'done|'"""


def _read_bridges(rows: Rows) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row[0] for row in rows.get("bridge", ())))


BRIDGES_KIND = HostFactKind(Bridges, "bridges", _BRIDGES_SCRIPT, _read_bridges)


@dataclass(frozen=True, slots=True)
class NetworkLinks:
    """The names of all network interfaces, whatever they are."""

    kind: ClassVar[str] = "links"


_LINKS_SCRIPT = """for b in /sys/class/net/*; do
  if [ -e "$b" ]; then printf 'link|%s\\n' "${b##*/}"; fi
done
echo 'done|'"""


def _read_links(rows: Rows) -> tuple[str, ...]:
    return tuple(row[0] for row in rows.get("link", ()))


LINKS_KIND = HostFactKind(NetworkLinks, "network interfaces", _LINKS_SCRIPT, _read_links)
