"""OpenWrt's reservations: sections `host` of /etc/config/dhcp, as `uci show dhcp` prints them.

Sources: OpenWrt's documentation of the DHCP configuration, section "Static leases"; `uci_print_value` of uci;
odhcpd's statefiles.c (it serves DHCPv4 where `maindhcp` is on, and its lease file has another form).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from provision.dhcp.contract import Lease, Reservation, as_seconds, fold_mac
from provision.dhcp.dnsmasq_files import ETHER, LEASE, Row
from provision.dhcp.dnsmasq_hosts import parse_leases, parse_reservations, read_mac

# The last line of a file that a person wrote may have no end: `echo` gives it one.
SHOW = r"""
command -v uci >/dev/null 2>&1 || { echo 'uci is not installed: this is not OpenWrt' >&2; exit 1; }
shown=$(uci show dhcp)
printf '%s\n' "$shown"
files=$(printf '%s\n' "$shown" | sed -n "s/^dhcp\.[^.]*\.leasefile='\(.*\)'$/\1/p")
printf '%s\n' "${files:-/tmp/dhcp.leases}" | while IFS= read -r file; do
    if [ -e "$file" ]; then { cat "$file"; echo; } | sed 's/^/lease /'; fi
done
case $shown in
*".readethers='1'"*) if [ -e /etc/ethers ]; then { cat /etc/ethers; echo; } | sed 's/^/ether /'; fi ;;
esac
echo end
""".strip()

_ODHCPD = re.compile(
    r"# \S+ (?P<mac>[0-9a-f:]{11,17}) ipv4 (?P<name>\S+) (?P<end>-?[0-9]+)"
    r" [0-9a-f]+ 32 (?P<address>[0-9.]+)/32\s*"
)
"""`# br-lan bc2411000001 ipv4 vm-1 1764547200 c0a80115 32 192.168.1.21/32`; -1 never ends, 0 is over."""
_OPTION = re.compile(r"dhcp\.([^.=]+)(?:\.([^.=]+))?=(.*)", re.DOTALL)


def rows(lines: Sequence[str]) -> tuple[Reservation | Lease, ...]:
    """Return all reservations and leases."""
    return (*_sections(lines), *_files(lines))


def _sections(lines: Sequence[str]) -> Iterator[Reservation]:
    kinds: dict[str, str] = {}
    options: dict[str, dict[str, list[str]]] = {}
    for line in lines:
        match = _OPTION.fullmatch(line)
        if match is None:
            continue
        section, option, value = match.groups()
        if option is None:
            kinds[section] = value
        else:
            options.setdefault(section, {})[option] = _values(value)
    for section, kind in kinds.items():
        own = options.get(section, {})
        address = " ".join(own.get("ip", [])).strip()
        if kind != "host" or not address:
            continue
        # one option with blanks between the MACs, or a list
        macs = [read_mac(word) for word in " ".join(own.get("mac", [])).split()]
        name = " ".join(own.get("name", []))
        client = " ".join(own.get("duid", []))
        is_ignored = address == "ignore"
        for mac in [mac for mac in macs if mac] or [""]:
            place = f"dhcp.{section}"
            yield Reservation(
                mac, "" if is_ignored else address, name, place, client=client, ignored=is_ignored
            )


def _values(text: str) -> list[str]:
    """Return the values of an option, each of which is in single quotes."""
    try:
        return shlex.split(text)
    except ValueError:
        return [text]


def _files(lines: Sequence[str]) -> Iterator[Reservation | Lease]:
    parts = [line.partition(" ") for line in lines]
    yield from parse_reservations(
        Row(ETHER, "/etc/ethers", text) for kind, _, text in parts if kind == "ether"
    )
    yield from parse_leases(Row(LEASE, "", text) for kind, _, text in parts if kind == "lease")
    for kind, _, text in parts:
        match = _ODHCPD.fullmatch(text) if kind == "lease" else None
        if match is not None and match["end"] != "0":
            name, end = match["name"].removeprefix("broken\\x20"), match["end"]
            digits = match["mac"]
            mac = fold_mac(digits if ":" in digits else ":".join(re.findall("..", digits)))
            yield Lease(mac, match["address"], "" if name == "-" else name, max(as_seconds(end), 0))
