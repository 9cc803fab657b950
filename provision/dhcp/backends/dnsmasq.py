"""Reservations of dnsmasq over SSH: one file a host in a dhcp-hostsdir.

Measured with 2.90: new and changed files act at once, a removed one only after SIGHUP; a line that is wrong
is only logged. Source: dnsmasq(8), `--dhcp-hostsdir`, `--dhcp-host`, `--dhcp-leasefile`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from provision.contracts.effect import Effect
from provision.contracts.snapshot import Snapshot
from provision.dhcp.contract import Lease, Reservation, fold_mac
from provision.dhcp.dnsmasq_paths import CONFIGURATION, HOSTS_FOLDER, LEASE_FILE
from provision.hosts import host_effects
from provision.hosts.queries.file import FileText
from provision.hosts.queries.shell import Shell
from provision.hosts.resources.file import File
from provision.inventory.models.site import Dhcp
from provision.values.diagnostics import Source

LEASES = FileText(LEASE_FILE)
UNIT = "dnsmasq.service"

_MAC = re.compile(r"(?:[0-9a-fA-F]{1,2}[:-]){5}[0-9a-fA-F]{1,2}")
_ADDRESS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9.-]*")
_LEASE_FIELDS = 4


@dataclass(frozen=True, slots=True)
class Dnsmasq:
    """A router with dnsmasq.

    Args:
        system: `router`.
        prefix: how the names of our files begin (`provision-lab-`).
        folder: the dhcp-hostsdir.
    """

    system: str
    prefix: str
    folder: str = HOSTS_FOLDER

    @classmethod
    def declared(cls, system: str, prefix: str, dhcp: Dhcp) -> Dnsmasq:
        """Return the router that an inventory declares."""
        return cls(system, prefix, (dhcp.file or HOSTS_FOLDER).rstrip("/"))

    @property
    def _listing(self) -> Shell:
        """All reservations, as `FILE:LINE`; a missing folder or file gives no line."""
        folder = shlex.quote(self.folder)
        return Shell(
            f"grep -rsH '' {folder} --exclude='.*' || true; "
            f"grep -rsH '^dhcp-host=' {CONFIGURATION} --exclude='.*' || true"
        )

    def queries(self) -> tuple[Any, ...]:
        """Ask for all reservations and leases."""
        return (self._listing, LEASES)

    def place(self, name: str) -> str:
        """Return the path of our file for a host."""
        return f"{self.folder}/{self.prefix}{name}"

    def reservations(self, snapshot: Snapshot, /) -> tuple[Reservation, ...]:
        """Read the listing."""
        return tuple(parse_reservations(snapshot[self._listing].stdout.decode(errors="replace")))

    def leases(self, snapshot: Snapshot, /) -> tuple[Lease, ...]:
        """Read the lease file; without one nothing is leased."""
        return tuple(parse_leases((snapshot[LEASES] or b"").decode(errors="replace")))

    def entry(self, reservation: Reservation, *, absent: bool, source: Source | None) -> File:
        """Return our file for a host: dnsmasq reads new and changed files at once, removals take a reload."""
        path = self.place(reservation.name)
        if absent:
            reload = Effect(host_effects.RELOAD, UNIT)
            return File(self.system, path, absent=True, effects=(reload,), source=source)
        line = f"{reservation.mac},{reservation.address},{reservation.name}\n"
        return File(self.system, path, line.encode(), source=source)


def parse_reservations(text: str) -> Iterator[Reservation]:
    """Read `FILE:LINE` lines: `mac,ip,name` or `dhcp-host=mac,ip,name` in any order of fields."""
    for row in text.splitlines():
        place, colon, line = row.partition(":")
        body = line.strip().removeprefix("dhcp-host=")
        if not colon or not body or body.startswith("#"):
            continue
        macs: list[str] = []
        address = name = ""
        for field in map(str.strip, body.split(",")):
            if _MAC.fullmatch(field):
                macs.append(field)
            elif _ADDRESS.fullmatch(field):
                address = address or field
            elif not name and _NAME.fullmatch(field):
                name = field
        for mac in macs:
            yield Reservation(fold_mac(mac), address, name, place)


def parse_leases(text: str) -> Iterator[Lease]:
    """Read the lease file: `expires mac address name client-id`."""
    for row in text.splitlines():
        fields = row.split()
        if len(fields) < _LEASE_FIELDS or not fields[0].isdecimal() or not _MAC.fullmatch(fields[1]):
            continue
        name = "" if fields[3] == "*" else fields[3]
        yield Lease(fold_mac(fields[1]), fields[2], name, int(fields[0]))
