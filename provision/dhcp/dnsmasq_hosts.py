"""dnsmasq's grammar of reservations (`dhcp-host`, /etc/ethers) and of leases: its option.c and lease.c."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from provision.dhcp.contract import Lease, Reservation, as_seconds
from provision.dhcp.dnsmasq_files import ETHER, HOST, LEASE, NAMED, OPTION, Row

_OPTION = re.compile(r"\s*dhcp-host\s*=\s*(.*)", re.DOTALL)
_GROUPS = re.compile(r"(?:[0-9a-fA-F]{1,2}-(?=[^-]*:))?((?:[0-9a-fA-F]+|\*)(?:[:.-](?:[0-9a-fA-F]+|\*))+)")
"""Bytes in hex, before them a hardware type and a dash (`parse_hex` of dnsmasq's util.c)."""
_ADDRESS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_TIME = re.compile(r"infinite|[0-9 ]+[wdhmsWDHMS]?")
_LEASE_FIELDS = 4

_HIDDEN = {",": "\ue000", ":": "\ue001", ".": "\ue002", "#": "\ue003", "=": "\ue004"}
"""What a quoted character stands for itself (`hide_meta` of dnsmasq's util.c)."""


def parse_reservations(rows: Iterable[Row]) -> Iterator[Reservation]:
    """Read all reservations of an address, and hosts that are ignored."""
    rows = tuple(rows)
    names = _addresses(rows)
    for row in rows:
        if row.sort == OPTION:
            match = _OPTION.fullmatch(without_comment(row.text))
            if match is not None:
                yield from _reservations(match[1], row.path, names)
        elif row.sort == HOST:
            yield from _reservations(without_comment(row.text), row.path, names)
        elif row.sort == ETHER:
            yield from _reservations(",".join(row.text.partition("#")[0].split()[:2]), row.path, names)


def without_comment(line: str) -> str:
    """Return a line without its comment, blanks around it and quotes; quoted separators stay hidden."""
    kept: list[str] = []
    is_quoted, after_blank, escaped = False, True, False
    for character in line:
        if escaped:
            kept.append(_HIDDEN.get(character, character))
            escaped = False
        elif character == '"':
            is_quoted = not is_quoted
            after_blank = False
        elif is_quoted and character == "\\":
            escaped = True
        elif is_quoted:
            kept.append(_HIDDEN.get(character, character))
        elif character == "#" and after_blank:
            break
        else:
            after_blank = character.isspace()
            kept.append(character)
    return "".join(kept).strip()


def _addresses(rows: Iterable[Row]) -> Mapping[str, str]:
    """Return the first IPv4 address of each name in files like hosts(5), by the name and its first label."""
    addresses: dict[str, str] = {}
    for row in rows:
        fields = row.text.partition("#")[0].split() if row.sort == NAMED else []
        if fields and _ADDRESS.fullmatch(fields[0]):
            for name in map(str.lower, fields[1:]):
                addresses.setdefault(name, fields[0])
                addresses.setdefault(name.partition(".")[0], fields[0])
    return addresses


def _reservations(text: str, path: str, names: Mapping[str, str]) -> Iterator[Reservation]:
    """Read the fields of one host, in any order: a reservation for each MAC, or one by name or client id."""
    macs: list[str] = []
    address = name = client = ""
    is_ignored = False
    for field in map(str.strip, text.split(",")):
        kind = field.partition(":")[0].lower()
        if kind == "id" and ":" in field:
            client = _shown(field)
        elif (kind in ("set", "net", "tag") and ":" in field) or field.startswith("["):
            continue
        elif mac := read_mac(field):
            macs.append(mac)
        elif _ADDRESS.fullmatch(field):
            address = field
        elif field == "ignore":
            is_ignored = True
        elif field and not _TIME.fullmatch(field) and ":" not in field:
            name = _shown(field).partition(".")[0]
    address = address or (names.get(name.lower(), "") if macs or client else "")
    if not (address or is_ignored):
        return  # tags, a name or a lease time for a host: its address is still any free one
    for mac in macs or [""]:
        yield Reservation(mac, address, name, path, client=client, ignored=is_ignored)


def read_mac(field: str) -> str:
    """Return a MAC with two digits a byte, `*` for any byte; empty if it is none.

    dnsmasq takes one digit for a byte, and several bytes between two separators.
    """
    match = _GROUPS.fullmatch(field)
    if match is None or _ADDRESS.fullmatch(field):
        return ""
    parts: list[str] = []
    for group in re.split("[:.-]", match[1].lower()):
        parts += [
            group[index : index + 2].rjust(2, "0") if group != "*" else "*"
            for index in range(0, len(group), 2)
        ]
    return ":".join(parts) if len(parts) == 6 else ""  # noqa: PLR2004 - bytes of an Ethernet address


def _shown(text: str) -> str:
    for character, hidden in _HIDDEN.items():
        text = text.replace(hidden, character)
    return text


def parse_leases(rows: Iterable[Row]) -> Iterator[Lease]:
    """Read IPv4 leases: `expires mac address name client-id`; 0 never expires."""
    for row in rows:
        if row.sort != LEASE:
            continue
        fields = row.text.split()
        if len(fields) < _LEASE_FIELDS or not fields[0].isascii() or not fields[0].isdecimal():
            continue
        mac = read_mac(fields[1])
        if not mac or not _ADDRESS.fullmatch(fields[2]):
            continue
        yield Lease(mac, fields[2], "" if fields[3] == "*" else fields[3], as_seconds(fields[0]))
