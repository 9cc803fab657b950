"""Reservations of dnsmasq over SSH: one file a host in a dhcp-hostsdir.

Measured with 2.90: new files act at once, a changed or removed one only after SIGHUP; a line that is wrong
is only logged. Source: dnsmasq(8), `--dhcp-hostsdir`, `--dhcp-host`, `--dhcp-leasefile`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from provision.contracts.effect import Effect
from provision.contracts.snapshot import Snapshot
from provision.dhcp.contract import Capabilities, Lease, Reservation
from provision.dhcp.dnsmasq_files import DnsmasqFiles
from provision.dhcp.dnsmasq_hosts import parse_leases, parse_reservations
from provision.dhcp.dnsmasq_paths import HOSTS_FOLDER
from provision.hosts import host_effects
from provision.hosts.resources.file import File
from provision.inventory.models.site import Dhcp
from provision.values.diagnostics import Source

UNIT = "dnsmasq.service"


@dataclass(frozen=True, slots=True)
class HostsFile(File):
    """A file in a dhcp-hostsdir; what dnsmasq has read from it stays in force until a reload."""

    def _due_effects(self, snapshot: Snapshot, /) -> tuple[Effect, ...]:
        """Return a reload, unless the file is new."""
        status = snapshot[self.queries()[0]]
        return (Effect(host_effects.RELOAD, UNIT),) if status.exists else ()


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
    def capabilities(self) -> Capabilities:
        """What it can do."""
        return Capabilities(acts_at_once=True, in_range=True, persists=True)

    @property
    def files(self) -> DnsmasqFiles:
        """What dnsmasq reads and writes."""
        return DnsmasqFiles(self.folder)

    def queries(self) -> tuple[Any, ...]:
        """Ask for all reservations and leases."""
        return (self.files,)

    def place(self, name: str) -> str:
        """Return the path of our file for a host."""
        return f"{self.folder}/{self.prefix}{name}"

    def reservations(self, snapshot: Snapshot, /) -> tuple[Reservation, ...]:
        """Read the reservations."""
        return tuple(parse_reservations(snapshot[self.files]))

    def leases(self, snapshot: Snapshot, /) -> tuple[Lease, ...]:
        """Read the leases."""
        return tuple(parse_leases(snapshot[self.files]))

    def entry(self, reservation: Reservation, *, absent: bool, source: Source | None) -> File:
        """Return our file for a host."""
        path = self.place(reservation.name)
        if absent:
            return HostsFile(self.system, path, absent=True, source=source)
        line = f"{reservation.mac},{reservation.address},{reservation.name}\n"
        return HostsFile(self.system, path, line.encode(), source=source)
