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

from provision.resources.contracts import (
    CannotTell,
    Change,
    Impossible,
    Key,
    Op,
    Remedy,
    Resource,
    Snapshot,
)
from provision.resources.dhcp.contract import (
    Lease,
    Reservation,
    conflict,
    fold_mac,
    held_by_other,
)
from provision.resources.host.base import cannot_tell
from provision.resources.host.file import File
from provision.resources.host.query_file import FileText
from provision.resources.host.shell import Shell, ShellResult
from provision.values.diagnostics import Source
from provision.values.effects import RELOAD, Effect, EffectClass

HOSTS_FOLDER = "/etc/dnsmasq.d/hosts"
"""Where reservations lie unless `network.dhcp.file` names another dhcp-hostsdir."""
LEASES = FileText("/var/lib/misc/dnsmasq.leases")
"""Debian's lease file."""
UNIT = "dnsmasq.service"

_MAC = re.compile(r"(?:[0-9a-fA-F]{1,2}[:-]){5}[0-9a-fA-F]{1,2}")
_ADDRESS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_LEASE_FIELDS = 4


@dataclass(frozen=True, slots=True)
class Dnsmasq:
    """A router with dnsmasq; a Backend.

    Args:
        system: `router`.
        prefix: how the names of our files begin (`provision-lab-`).
        folder: the dhcp-hostsdir.
    """

    system: str
    prefix: str
    folder: str = HOSTS_FOLDER

    @property
    def _listing(self) -> Shell:
        """All reservations, as `FILE:LINE`; a folder or file that is missing says nothing."""
        folder = shlex.quote(self.folder)
        return Shell(
            f"grep -rsH '' {folder} --exclude='.*' || true; "
            "grep -rsH '^dhcp-host=' /etc/dnsmasq.conf /etc/dnsmasq.d --exclude='.*' || true"
        )

    def questions(self) -> tuple[Any, ...]:
        """Ask for all reservations and leases."""
        return (self._listing, LEASES)

    def file(self, name: str) -> str:
        """Return the path of our file for a host."""
        return f"{self.folder}/{self.prefix}{name}"

    def reservations(self, seen: Snapshot) -> tuple[Reservation, ...] | CannotTell:
        """Read the listing."""
        answer = seen.answers.get(self._listing, CannotTell("the router was not asked"))
        if not isinstance(answer, ShellResult):
            return answer if isinstance(answer, CannotTell) else CannotTell("no listing")
        return tuple(parse_reservations(answer.stdout.decode(errors="replace")))

    def leases(self, seen: Snapshot) -> tuple[Lease, ...] | CannotTell:
        """Read the lease file; without one nothing is leased."""
        answer = seen.answers.get(LEASES, CannotTell("the router was not asked"))
        if isinstance(answer, CannotTell):
            return answer
        return tuple(parse_leases(answer.decode(errors="replace") if isinstance(answer, bytes) else ""))

    def ensure(self, wanted: Reservation, source: Source | None) -> Resource:
        """Return the resource that reserves an address."""
        return DnsmasqReservation(self, wanted, source=source)

    def remove(self, wanted: Reservation, source: Source | None) -> Resource:
        """Return the resource that takes our file away."""
        return DnsmasqReservation(self, wanted, absent=True, source=source)


@dataclass(frozen=True, slots=True)
class DnsmasqReservation:
    """One file with one host; what others wrote is never changed.

    Args:
        backend: the router.
        wanted: MAC, address, name.
        absent: our file must not be there.
        source: inventory line.
    """

    backend: Dnsmasq
    wanted: Reservation
    absent: bool = False
    source: Source | None = None

    @property
    def key(self) -> Key:
        """Identity: the host's name."""
        return Key(self.backend.system, "dhcp-reservation", self.wanted.name)

    @property
    def _file(self) -> File:
        line = f"{self.wanted.mac},{self.wanted.address},{self.wanted.name}\n"
        effects = (Effect(EffectClass.RESTART, f"{RELOAD}{UNIT}"),) if self.absent else ()
        return File(
            self.backend.system,
            self.backend.file(self.wanted.name),
            None if self.absent else line.encode(),
            absent=self.absent,
            effects=effects,
            source=self.source,
        )

    def queries(self) -> tuple[Any, ...]:
        """Ask for our file, and for whom else the address is."""
        if self.absent:
            return self._file.queries()
        return (*self._file.queries(), *self.backend.questions())

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Return what differs; an address that somebody else holds needs a person."""
        found = self._file.changes(seen)
        if self.absent:
            return found
        if any(each.op is Op.ATTENTION for each in found):
            return found
        if self._by_others(seen):
            # The same reservation, written by somebody else, is as good as ours.
            return ()
        holder = self._holder(seen)
        if isinstance(holder, CannotTell):
            return (Change(Op.ATTENTION, "reservation", f"cannot tell: {holder.reason}", str(self.wanted)),)
        if holder:
            return (Change(Op.ATTENTION, "reservation", holder, str(self.wanted)),)
        return found

    def fix(self, seen: Snapshot) -> Remedy:
        """Write or remove our file."""
        if not self.absent:
            holder = self._holder(seen)
            if isinstance(holder, CannotTell):
                return cannot_tell(self.key, holder.reason, self.source)
            if holder:
                return Impossible(held_by_other(self.wanted, holder, self.wanted.name, self.source))
        return self._file.fix(seen)

    def _others(self, seen: Snapshot) -> tuple[Reservation, ...] | CannotTell:
        found = self.backend.reservations(seen)
        if isinstance(found, CannotTell):
            return found
        own = self.backend.file(self.wanted.name)
        return tuple(each for each in found if each.place != own)

    def _by_others(self, seen: Snapshot) -> bool:
        found = self._others(seen)
        if isinstance(found, CannotTell):
            return False
        return any((each.mac, each.address) == (self.wanted.mac, self.wanted.address) for each in found)

    def _holder(self, seen: Snapshot) -> str | CannotTell:
        reservations, leases = self._others(seen), self.backend.leases(seen)
        for each in (reservations, leases):
            if isinstance(each, CannotTell):
                return each
        if isinstance(reservations, CannotTell) or isinstance(leases, CannotTell):
            return ""
        return conflict(self.wanted, reservations, leases, seen.clock)


def parse_reservations(text: str) -> Iterator[Reservation]:
    """Read `FILE:LINE` lines: `mac,ip,name` or `dhcp-host=mac,ip,name` in any order of fields."""
    for row in text.splitlines():
        place, colon, line = row.partition(":")
        body = line.strip().removeprefix("dhcp-host=")
        if not colon or not body or body.startswith("#"):
            continue
        fields = [each.strip() for each in body.split(",")]
        macs = [each for each in fields if _MAC.fullmatch(each)]
        addresses = [each for each in fields if _ADDRESS.fullmatch(each)]
        rest = [
            each
            for each in fields
            if each not in {*macs, *addresses} and re.fullmatch(r"[A-Za-z][A-Za-z0-9.-]*", each)
        ]
        for mac in macs:
            yield Reservation(
                fold_mac(mac), addresses[0] if addresses else "", rest[0] if rest else "", place
            )


def parse_leases(text: str) -> Iterator[Lease]:
    """Read the lease file: `expires mac address name client-id`."""
    for row in text.splitlines():
        fields = row.split()
        if len(fields) < _LEASE_FIELDS or not fields[0].isdecimal() or not _MAC.fullmatch(fields[1]):
            continue
        name = "" if fields[3] == "*" else fields[3]
        yield Lease(fold_mac(fields[1]), fields[2], name, int(fields[0]))
