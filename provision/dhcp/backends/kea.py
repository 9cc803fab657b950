"""Reservations of Kea over SSH, through its control socket on its own host.

Kea 3 has commands for one reservation; older ones take a whole configuration (`config-set`, `config-write`).
The program on the router uses what `list-commands` names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from provision.contracts.snapshot import Snapshot
from provision.dhcp.contract import Capabilities, Lease, Reservation
from provision.dhcp.listing import KeaState, ListedEntry
from provision.dhcp.operations import KeaEdit
from provision.inventory.models.site import Dhcp
from provision.values.diagnostics import Source

SOCKET = "/run/kea/kea4-ctrl-socket"
"""Debian's; `network.dhcp.file` names another one."""


@dataclass(frozen=True, slots=True)
class Kea:
    """A router with Kea.

    Args:
        system: `router`.
        prefix: how the names of our entries begin (`provision-lab-`).
        socket: its control socket.
    """

    system: str
    prefix: str
    socket: str = SOCKET

    @classmethod
    def declared(cls, system: str, prefix: str, dhcp: Dhcp) -> Kea:
        """Return the router that an inventory declares."""
        return cls(system, prefix, dhcp.file or SOCKET)

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        return Capabilities(acts_at_once=True, in_range=True, persists=True)

    def queries(self) -> tuple[Any, ...]:
        """Ask for all reservations and leases."""
        return (KeaState(self.socket),)

    def place(self, name: str) -> str:
        """Return the place of our entry: its user-context names it."""
        return f"kea:{self.prefix}{name}"

    def reservations(self, snapshot: Snapshot, /) -> tuple[Reservation, ...]:
        """Read the reservations."""
        return tuple(row for row in snapshot[KeaState(self.socket)] if isinstance(row, Reservation))

    def leases(self, snapshot: Snapshot, /) -> tuple[Lease, ...]:
        """Read the leases."""
        return tuple(row for row in snapshot[KeaState(self.socket)] if isinstance(row, Lease))

    def entry(self, reservation: Reservation, *, absent: bool, source: Source | None) -> ListedEntry:
        """Return our entry for a host."""
        own = f"{self.prefix}{reservation.name}"
        mac = "" if absent else reservation.mac
        edit = KeaEdit(self.socket, own, mac, reservation.address, reservation.name)
        place, listing = self.place(reservation.name), KeaState(self.socket)
        return ListedEntry(self.system, listing, place, reservation, edit, absent, source=source)
